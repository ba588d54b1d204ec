"""Say in words who can see the base of a view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from noalias import native
from noalias.native.core import ViewFacts
from noalias.ownership import observers


@dataclass(frozen=True)
class Explanation:
    """Who sees the base of a view, and what an in-place operator on the view does about it.

    Attributes:
        is_view: whether the tensor is a differentiable view at all.
        hidden: whether nobody but the view itself can see the base.
        verdict: the proof's result: ``hidden``, or the first reason it found not to be.
        observers: the base's observers, each a sentence's end; empty where it is hidden.
        consequence: what an in-place operator on the tensor does, in stock PyTorch and cured.
    """

    is_view: bool
    hidden: bool
    verdict: str
    observers: tuple[str, ...]
    consequence: str

    def __str__(self) -> str:
        if not self.is_view:
            return f"an ordinary tensor: it is no view. {self.consequence}"
        if self.hidden:
            return f"a view whose base is hidden: nobody else can see it. {self.consequence}"
        seen_by = "".join(f"\n  - {observer}" for observer in self.observers)
        return f"a view whose base is observable, by{seen_by}\n{self.consequence}"


_NO_VIEW = "An in-place operator on it rewrites nobody's history."
_HIDDEN = (
    "In stock PyTorch an in-place operator on it still rewrites the base's history (CopySlices); "
    'with enable("hidden_base") the view relationship is dropped instead.'
)
_OBSERVABLE = (
    "An in-place operator on it rewrites the base's history (CopySlices), and has to: "
    "the base's gradient must change with it."
)
_REFUSED = (
    "PyTorch refuses an in-place operator on it: it cannot tell how gradients should pass. "
    "Make the view inside and outside no_grad alike, or write to a clone."
)


def explain(tensor: Tensor) -> Explanation:
    """Who can see the base of ``tensor``, of any shape and dtype: nobody, or which observers.

    Looks and changes nothing. Names are searched in the running frames of every thread, in modules
    and in containers; nodes in the graphs of all tensors that Python can reach.

    Raises:
        TypeError: ``tensor`` is no tensor.
        noalias.native.NativeUnavailable: the core cannot be built.
    """
    if not isinstance(tensor, Tensor):
        hint = (
            "; the command `noalias explain` reads error texts" if isinstance(tensor, str) else ""
        )
        raise TypeError(f"noalias.explain: expected a tensor, not {type(tensor).__name__}{hint}")
    core = native.load()
    # First of all: looking for observers makes Python objects, which are owners themselves.
    facts = core.facts_about(tensor)
    if not facts.is_view:
        return Explanation(False, False, "no_view", (), _NO_VIEW)
    if facts.verdict == "hidden":
        return Explanation(True, True, "hidden", (), _HIDDEN)
    found = tuple(_observers(tensor, facts))
    refused = facts.verdict in ("stale", "inference")
    return Explanation(True, False, facts.verdict, found, _REFUSED if refused else _OBSERVABLE)


def _observers(tensor: Tensor, facts: ViewFacts) -> Iterator[str]:
    core = native.load()
    tensors = observers.live_tensors()
    relations = [core.relation_to(tensor, other) for other in tensors]
    base = tensors[relations.index("base")] if "base" in relations else None
    found = 0
    if base is not None:
        for name in observers.names_of(base, ignore=tensors):
            found += 1
            yield f"{name}, which holds the base"
    for other, relation in zip(tensors, relations, strict=True):
        if relation == "sibling_view":
            found += 1
            yield f"another view of it, {observers.describe(other, tensors)}"
        elif relation == "shared_storage":
            found += 1
            yield f"a tensor over the same memory, {observers.describe(other, tensors)}"
    for node, attribute in observers.nodes_that_saved(tensor, tensors):
        found += 1
        yield f"the node {node}, which saved it for backward ({attribute})"
    if facts.verdict in _IN_WORDS:
        found += 1
        yield _IN_WORDS[facts.verdict]
    if not found:
        yield _UNSEEN.get(facts.verdict, f"an owner in C++ (proof: {facts.verdict})")


_IN_WORDS = {
    "weak_reference": "a weak reference, which could bring the base back",
    "python_storage": "somebody who holds its untyped_storage()",
    "leaf": "whoever reads .grad: the base, or the view itself, is a leaf that requires grad",
    "hook": "a hook or retain_grad on the base, which asks for its gradient",
    "inference": "inference mode, in which it was made: there is no version to check",
    "stale": "nobody, but PyTorch marked the view when it was made and refuses its history",
    "overlap": "the view itself, in which elements share memory: a write to one reaches others",
    "offset": "later views, which PyTorch misplaces: it is complex, inside its memory",
    "no_storage": "unknown: the tensor has no storage to count the owners of",
}

_UNSEEN = {
    "python_name": "a Python reference outside names and containers: a NumPy array, a DLPack "
    "capsule, a closure or an extension module",
    "other_owner": "an owner in C++ that Python cannot list: a saved tensor of a graph nobody "
    "holds a name for, or an extension",
    "shared_storage": "another tensor over the same memory in C++: a result or an input saved "
    "for backward, or a detached alias",
}
