"""Statements with statements inside: contexts, loops, functions under transforms."""

from __future__ import annotations

import torch

from .draft import Draft, grow, grows
from .grow_engine import term
from .grow_tensors import write
from .source import CONTEXTS, TRANSFORMS
from .statements import Block, Call, Leaf, Let, Loop, Peek, Statement, Step, Write
from .support import GLOBALS

TRANSFORM_WEIGHTS = dict.fromkeys(TRANSFORMS, 1.0) | {
    "plain": 2.0,
    "checkpoint": 2.0,
    "checkpoint_reentrant": 2.0,
}


@grows("block")
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


@grows("dual")
def _dual(draft: Draft) -> None:
    _under(
        draft, "dual", {"let": 4, "hidden_view": 4, "view": 4, "write": 5, "peek": 1, "delete": 1}
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


def _make_dual(draft: Draft) -> None:
    source = draft.recent(draft.tensors(grad=True)) or draft.recent(draft.tensors())
    if source is None:
        return
    tangent = draft.operand(tuple(draft.value(source).shape), draft.value(source).dtype)
    draft.add(Let(draft.new_name(), source, (("make_dual", tangent),)))


@grows("loop")
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
        ways: list[Step] = [("index", at), ("select", dim, "t")]
        if dim == 0:
            ways.append(("index", (("t", "t + 1", None), 0)))
        body.append(Let(part, source, (rng.choice(ways),)))
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


@grows("call")
def _call(draft: Draft) -> None:
    rng = draft.rng
    transform = rng.choices(list(TRANSFORM_WEIGHTS), list(TRANSFORM_WEIGHTS.values()))[0]
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
    result: Step = term(rng, child, name) if scalar else ("self", name)
    count = 2 if transform in ("grad_and_value", "vjp", "jvp") else 1
    prefix = draft.new_name("c")
    outs = tuple(f"$c{int(prefix[2:]) + i}" for i in range(count))
    call = Call(outs, transform, (argument,), (parameter,), tuple(child.statements), result)
    if draft.add(call) is None and rng.random() < 0.5:
        write(draft, outs[0])
