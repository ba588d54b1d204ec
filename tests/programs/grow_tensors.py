"""Statements that make, view and write tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from .draft import Draft, grows
from .grow_engine import hook
from .operators import IN_PLACE, PRODUCERS, SPLITS, VIEWS, Operator, choose, is_expression
from .statements import Delete, Foreach, Let, Module, Step, Unpack, Write


@grows("let")
def _let(draft: Draft) -> None:
    _bind(draft, [PRODUCERS])


@grows("hidden_view")
def _hidden_view(draft: Draft) -> None:
    out = _bind(draft, [PRODUCERS] + [VIEWS] * draft.rng.choice([1, 1, 2]))
    if out is None:
        return
    if draft.rng.random() < 0.3:
        hook(draft, out)
    if draft.rng.random() < 0.6:
        write(draft, out)


@grows("view")
def _view(draft: Draft) -> None:
    out = _bind(draft, [VIEWS] * draft.rng.choice([1, 1, 1, 2]))
    if out is not None and draft.rng.random() < 0.4:
        write(draft, out)


def _bind(draft: Draft, tables: list[list[Operator]]) -> str | None:
    source = draft.recent(draft.tensors())
    if source is None:
        return None
    chain = draft.chain(source, tables)
    if chain is None:
        return None
    rebinds = draft.rng.random() < 0.2 and (not draft.function or source[1:] in draft.locals)
    out = source if rebinds else draft.new_name()
    return out if draft.add(Let(out, source, chain)) is None else None


@grows("unpack")
def _unpack(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is None:
        return
    head: tuple[Step, ...] | None = ()
    if draft.rng.random() < 0.6:
        head = draft.chain(source, [PRODUCERS])
    if head is None:
        return
    x: object = draft.value(source)
    for step in head:
        x = draft.apply(step, x)  # type: ignore[arg-type]
    if not isinstance(x, Tensor):
        return
    step = draft.step(choose(draft.rng, SPLITS), x)
    parts = None if step is None else draft.apply(step, x)
    if step is None or not isinstance(parts, tuple) or not 0 < len(parts) < 5:
        return
    first = draft.new_name("u")
    number = int(first[2:])
    outs = tuple(f"$u{number + i}" for i in range(len(parts)))
    if draft.add(Unpack(outs, source, (*head, step))) is None and draft.rng.random() < 0.6:
        for name in outs[1:]:
            if draft.rng.random() < 0.4:
                draft.add(Delete(name))
        write(draft, outs[0])


@grows("write")
def write(draft: Draft, target: str | None = None) -> None:
    target = target or draft.recent(draft.tensors(local=draft.function))
    if target is None or target not in draft.tensors():
        return
    rng = draft.rng
    if draft.value(target).is_leaf and draft.value(target).requires_grad and rng.random() < 0.9:
        return
    chain = draft.chain(target, [VIEWS]) if rng.random() < 0.25 else ()
    if chain is None:
        return
    x: object = draft.value(target)
    for step in chain:
        x = draft.apply(step, x)  # type: ignore[arg-type]
    operator = choose(rng, IN_PLACE)
    if not isinstance(x, Tensor) or (
        chain and not operator.expression and operator.source.startswith("{0} ")
    ):
        return
    written = draft.step(operator, x)
    if written is not None:
        thread = rng.random() < 0.04 and is_expression(written) and not draft.function
        draft.add(Write(target, chain, written, thread))


@grows("foreach")
def _foreach(draft: Draft) -> None:
    names = [name for name in draft.tensors(local=draft.function) if not draft.value(name).is_leaf]
    if len(names) < 2:
        return
    targets = tuple(draft.rng.sample(names[-4:], 2))
    operand = draft.operand(tuple(draft.value(targets[0]).shape), draft.value(targets[0]).dtype)
    steps: list[Step] = [
        ("foreach_mul_", 2.0),
        ("foreach_add_", 0.5),
        ("foreach_exp_",),
        ("foreach_zero_",),
        ("foreach_mul_list_", (operand, operand)),
    ]
    draft.add(Foreach(targets, draft.rng.choice(steps)))


@grows("module")
def _module(draft: Draft) -> None:
    rng = draft.rng
    modules = [
        f"${name}" for name, value in draft.values.items() if isinstance(value, torch.nn.Module)
    ]
    sources = [
        name
        for name in draft.tensors()
        if (v := draft.value(name)).dtype == torch.float32 and v.dim() and v.numel()
    ]
    source = draft.recent(sources)
    if source is None:
        return
    x = draft.value(source)
    if draft.function or (modules and rng.random() < 0.3):
        module = rng.choice(modules) if modules else None
    else:
        way = rng.choice(
            [
                "linear",
                "linear_relu",
                "linear_dropout",
                *(["norm_leaky"] * 2 if x.dim() == 3 else []),
            ]
        )
        sizes = (x.size(-2), 0) if way == "norm_leaky" else (x.size(-1), rng.randint(1, 4))
        module = draft.new_name("m")
        draft.add(Module(module, way, sizes, rng.random() < 0.4))
    if module is None:
        return
    views = draft.chain(source, [VIEWS]) if rng.random() < 0.2 else ()
    out = draft.new_name()
    if (
        draft.add(Let(out, source, (*(views or ()), ("call", module)))) is None
        and rng.random() < 0.5
    ):
        write(draft, out)
