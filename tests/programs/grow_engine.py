"""Hooks, and runs of the engine."""

from __future__ import annotations

from random import Random

from .draft import Draft, grows
from .statements import Backward, Hook, Step


@grows("hook")
def hook(draft: Draft, target: str | None = None) -> None:
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
        # A node of several outputs shows its hooks all of them, also those a reference run does not
        # have.
        if not any(name in str(x.grad_fn) for name in ("Split", "Unbind", "Chunk", "Unsafe")):
            ways.append("node_pre")
            if not x._is_view():
                ways.append("node")
    draft.add(Hook(target, draft.rng.choice(ways)))


@grows("backward")
def backward(draft: Draft) -> None:
    rng = draft.rng
    terms = some_terms(draft, rng.randint(1, 3))
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


def some_terms(draft: Draft, count: int) -> tuple[Step, ...]:
    names = draft.tensors(grad=True)
    names = [name for name in names if not draft.value(name).is_leaf] or names
    return tuple(
        term(draft.rng, draft, name)
        for _ in range(count)
        if (name := draft.recent(names)) is not None
    )


def term(rng: Random, draft: Draft, name: str) -> Step:
    x = draft.value(name)
    if x.is_complex():
        return ("abs", name) if rng.random() < 0.3 else ("view_as_real", name)
    if rng.random() < 0.2:
        return ("mul", name, draft.operand(tuple(x.shape), x.dtype))
    return (rng.choice(["sum", "square", "square", "cos"]), name)
