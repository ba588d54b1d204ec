"""How a draft grows: one function for each kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
import torch.autograd.forward_ad as fwAD
from torch import Tensor

from .generate import GLOBALS, Draft
from .operators import IN_PLACE, PRODUCERS, SPLITS, VIEWS, choose, is_expression, render_step
from .source import CONTEXTS
from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Delete,
    Deref,
    Export,
    Foreach,
    Hook,
    Leaf,
    Let,
    Loop,
    Module,
    Peek,
    Stash,
    Statement,
    Step,
    Unpack,
    WeakRef,
    Write,
    reads,
    walk,
)

Grower = Callable[[Draft], object]


def grow(draft: Draft, weights: dict[str, float]) -> None:
    """Adds about one statement, of a kind drawn by weight."""
    kind = draft.rng.choices(list(weights), list(weights.values()))[0]
    GROWERS[kind](draft)


def finish(draft: Draft) -> None:
    """Ends the program with a backward, if it lacks one, and takes out leaves nobody reads."""
    if not any(isinstance(item, Backward) for item in draft.statements[-2:]):
        _backward(draft)
    used = set().union(*(reads(item) for item in walk(tuple(draft.statements))), set())
    draft.statements = [
        item for item in draft.statements if not isinstance(item, Leaf) or item.out in used
    ]


def _let(draft: Draft) -> None:
    _bind(draft, [PRODUCERS])


def _hidden_view(draft: Draft) -> None:
    out = _bind(draft, [PRODUCERS] + [VIEWS] * draft.rng.choice([1, 1, 2]))
    if out is None:
        return
    if draft.rng.random() < 0.3:
        _hook(draft, out)
    if draft.rng.random() < 0.6:
        _write(draft, out)


def _view(draft: Draft) -> None:
    out = _bind(draft, [VIEWS] * draft.rng.choice([1, 1, 1, 2]))
    if out is not None and draft.rng.random() < 0.4:
        _write(draft, out)


def _bind(draft: Draft, tables: list[list[object]]) -> str | None:
    source = draft.recent(draft.tensors())
    if source is None:
        return None
    chain = draft.chain(source, tables)  # type: ignore[arg-type]
    if chain is None:
        return None
    rebinds = draft.rng.random() < 0.2 and (not draft.function or source[1:] in draft.locals)
    out = source if rebinds else draft.new_name()
    return out if draft.add(Let(out, source, chain)) is None else None


def _unpack(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is None:
        return
    head = draft.chain(source, [PRODUCERS]) if draft.rng.random() < 0.6 else ()
    if head is None:
        return
    x: object = draft.value(source)
    for step in head:
        x = draft._apply(step, x)  # type: ignore[arg-type]
    if not isinstance(x, Tensor):
        return
    step = draft._step(choose(draft.rng, SPLITS), x)
    parts = None if step is None else draft._apply(step, x)
    if step is None or not isinstance(parts, tuple) or not 0 < len(parts) < 5:
        return
    first = draft.new_name("u")
    number = int(first[2:])
    outs = tuple(f"$u{number + i}" for i in range(len(parts)))
    if draft.add(Unpack(outs, source, (*head, step))) is None and draft.rng.random() < 0.6:
        for name in outs[1:]:
            if draft.rng.random() < 0.4:
                draft.add(Delete(name))
        _write(draft, outs[0])


def _write(draft: Draft, target: str | None = None) -> None:
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
        x = draft._apply(step, x)  # type: ignore[arg-type]
    operator = choose(rng, IN_PLACE)
    if not isinstance(x, Tensor) or (
        chain and not operator.expression and operator.source.startswith("{0} ")
    ):
        return
    written = draft._step(operator, x)
    if written is not None:
        thread = rng.random() < 0.04 and is_expression(written) and not draft.function
        draft.add(Write(target, chain, written, thread))


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


def _alias(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None:
        draft.add(Alias(draft.new_name(), source))


def _delete(draft: Draft) -> None:
    names = draft.tensors(local=draft.function)
    if len(names) > 3:
        draft.add(Delete(draft.rng.choice(names[:-1])))


def _stash(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(Stash(source))


def _weak(draft: Draft) -> None:
    references = [
        name for name, value in draft.values.items() if name.startswith("r") and callable(value)
    ]
    if references and draft.rng.random() < 0.5:
        draft.add(Deref(draft.new_name(), f"${draft.rng.choice(references)}"))
    else:
        source = draft.recent(draft.tensors())
        if (
            source is not None
            and draft.add(WeakRef(draft.new_name("r"), source)) is None
            and draft.rng.random() < 0.5
        ):
            draft.add(Delete(source))


def _export(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(
            Export(draft.new_name("e"), source, draft.rng.choice(["numpy", "dlpack", "storage"]))
        )


def _hook(draft: Draft, target: str | None = None) -> None:
    target = target or draft.recent(draft.tensors(grad=True))
    if (
        target is None
        or target not in draft.tensors()
        or draft.function
        or not draft.value(target).requires_grad
    ):
        return
    x = draft.value(target)
    if x.is_leaf:
        ways = ["log", "keep", "post_accumulate", "scale"]
    else:
        ways = ["log", "log", "keep", "scale", "retain_grad", "retain_grad"]
        # A node of several outputs shows its hooks all of them, also those a reference run does not have.
        if not any(name in x.grad_fn.name() for name in ("Split", "Unbind", "Chunk", "Unsafe")):
            ways.append("node_pre")
            if not x._is_view():
                ways.append("node")
    draft.add(Hook(target, draft.rng.choice(ways)))


def _peek(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(Peek(source))


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
        _write(draft, out)


def _terms(draft: Draft, count: int) -> tuple[Step, ...]:
    names = draft.tensors(grad=True)
    names = [name for name in names if not draft.value(name).is_leaf] or names
    return tuple(
        _term(draft.rng, draft, name)
        for _ in range(count)
        if (name := draft.recent(names)) is not None
    )


def _term(rng: Random, draft: Draft, name: str) -> Step:
    x = draft.value(name)
    if x.is_complex():
        return ("abs", name) if rng.random() < 0.3 else ("view_as_real", name)
    if rng.random() < 0.2:
        return ("mul", name, draft.operand(tuple(x.shape), x.dtype))
    return (rng.choice(["sum", "square", "square", "cos"]), name)


def _backward(draft: Draft) -> None:
    rng = draft.rng
    terms = _terms(draft, rng.randint(1, 3))
    if not terms or draft.function:
        return
    gradient = None
    if rng.random() < 0.25:
        name = str(terms[0][1])
        terms = (("self", name),)
        gradient = draft.operand(tuple(draft.value(name).shape), draft.value(name).dtype)
    inputs: tuple[str, ...] = ()
    if rng.random() < 0.4:
        candidates = draft.tensors(grad=True)
        leaves = [name for name in candidates if draft.value(name).is_leaf]
        candidates += leaves * 3
        inputs = tuple(dict.fromkeys(rng.choices(candidates, k=rng.randint(1, 3))))
    create_graph = rng.random() < (0.4 if inputs else 0.1)
    outs = tuple(draft.new_name(f"g{i}") for i in range(len(inputs)))
    draft.add(
        Backward(
            outs, terms, inputs, gradient, rng.random() < 0.5, create_graph, rng.random() < 0.1
        )
    )


def _block(draft: Draft) -> None:
    rng = draft.rng
    context = rng.choices(
        [
            "no_grad",
            "enable_grad",
            "inference",
            "saved_same",
            "saved_clone",
            "save_on_cpu",
            "allow_mutation",
            "anomaly",
        ],
        [6, 1, 0.5, 2, 2, 1, 0.3, 0.3],
    )[0]
    _under(
        draft,
        context,
        {
            "let": 4,
            "hidden_view": 4,
            "view": 4,
            "write": 5,
            "unpack": 0.5,
            "delete": 1,
            "hook": 0.5,
        },
    )


def _under(draft: Draft, context: str, weights: dict[str, float]) -> None:
    header = CONTEXTS[context].removeprefix("with ").removesuffix(":")
    scope = dict(GLOBALS)
    with draft.child() as child, eval(header, scope):
        if context == "dual":
            _make_dual(child)
        for _ in range(draft.rng.randint(1, 5)):
            grow(child, weights)
        if context == "dual":
            for name in child.tensors()[-2:]:
                child.add(Peek(name))
    if child.statements:
        draft.statements.append(Block(context, tuple(child.statements)))


def _dual(draft: Draft) -> None:
    _under(
        draft, "dual", {"let": 4, "hidden_view": 4, "view": 4, "write": 5, "peek": 1, "delete": 1}
    )


def _make_dual(draft: Draft) -> None:
    source = draft.recent(draft.tensors(grad=True)) or draft.recent(draft.tensors())
    if source is None:
        return
    tangent = draft.operand(tuple(draft.value(source).shape), draft.value(source).dtype)
    draft.add(Let(draft.new_name(), source, (("make_dual", tangent),)))


def _loop(draft: Draft) -> None:
    """A recurrence that reads its input, fills its output, or both, one step at a time."""
    rng = draft.rng
    steps, width = rng.randint(2, 4), rng.randint(1, 3)
    dim = rng.choice([0, 0, 0, 1])
    shape = (steps, width) if dim == 0 else (width, steps)
    h = draft.operand((width,), getattr(torch, draft.dtype))
    body: list[Statement] = []
    at = ("t",) if dim == 0 else ("...", "t")
    state, out = draft.new_name("h"), None
    update: tuple[Step, ...] = (("mul_number", 0.5),)
    if rng.random() < 0.7:
        source = draft.operand(shape, getattr(torch, draft.dtype))
        part = draft.new_name("p")
        reads_ = [("index", at), ("select", dim, "t")] + (
            [("index", (("t", "t + 1", None), 0))] if dim == 0 else []
        )
        body.append(Let(part, source, (rng.choice(reads_),)))
        update = (*update, (rng.choice(["add", "mul"]), part))
        if rng.random() < 0.3:
            body.append(Write(part, (), ("mul_number_", 2)))
    body.append(Let(state, state, (*update, (rng.choice(["tanh", "sigmoid", "sin"]),))))
    if rng.random() < 0.75:
        out = draft.new_name("o")
        first: Statement = Leaf(out, shape, draft.dtype, False, rng.choice(["zeros", "ones"]))
        if rng.random() < 0.2:
            first = Let(out, draft.operand(shape, getattr(torch, draft.dtype)), (("clone",),))
        draft.add(first)
        writes: list[Statement] = [
            Write(out, (), ("index_set", at, state)),
            Write(out, (("select", dim, "t"),), ("copy_", state)),
            Write(out, (), ("index_add_set", at, state)),
        ]
        body.append(rng.choice(writes))
        if rng.random() < 0.2:
            body.append(Write(out, (("select", dim, "t"),), ("mul_number_", 0.5)))
    draft.add(Let(state, h, (("mul_number", 1),)))
    draft.add(Loop(steps, tuple(body)))


def _call(draft: Draft) -> None:
    rng = draft.rng
    transform = rng.choice(
        [
            "plain",
            "plain",
            "thread",
            "grad",
            "grad_and_value",
            "vjp",
            "jvp",
            "vmap",
            "vmap_grad",
            "jacrev",
            "jacfwd",
        ]
        + [
            "functionalize",
            "checkpoint",
            "checkpoint",
            "checkpoint_reentrant",
            "checkpoint_reentrant",
        ]
    )
    argument = draft.recent(draft.tensors())
    if argument is None or draft.function:
        return
    x = draft.value(argument)
    if transform.startswith("vmap") and not x.dim():
        return
    parameter = draft.new_name("p")
    with draft.child(function=True) as child:
        inner = x[0] if transform.startswith("vmap") and x.size(0) else x
        child.values[parameter[1:]] = (
            inner.detach().clone().requires_grad_(inner.is_floating_point()) * 1
        )
        child.locals.add(parameter[1:])
        for _ in range(rng.randint(1, 5)):
            grow(
                child,
                {
                    "let": 4,
                    "hidden_view": 6,
                    "view": 3,
                    "write": 6,
                    "delete": 1,
                    "unpack": 0.5,
                    "foreach": 0.2,
                },
            )
    local = [name for name in child.tensors(local=True) if name != parameter] or [parameter]
    name = local[-1]
    scalar = transform in ("grad", "grad_and_value", "vmap_grad")
    result: Step = _term(rng, child, name) if scalar else ("self", name)
    count = 2 if transform in ("grad_and_value", "vjp", "jvp") else 1
    prefix = draft.new_name("c")
    outs = tuple(f"$c{int(prefix[2:]) + i}" for i in range(count))
    call = Call(outs, transform, (argument,), (parameter,), tuple(child.statements), result)
    if draft.add(call) is None and rng.random() < 0.5:
        _write(draft, outs[0])


GROWERS: dict[str, Grower] = {
    "let": _let,
    "hidden_view": _hidden_view,
    "view": _view,
    "write": _write,
    "unpack": _unpack,
    "foreach": _foreach,
    "alias": _alias,
    "delete": _delete,
    "stash": _stash,
    "weak": _weak,
    "export": _export,
    "hook": _hook,
    "peek": _peek,
    "module": _module,
    "backward": _backward,
    "block": _block,
    "loop": _loop,
    "call": _call,
    "dual": _dual,
}
