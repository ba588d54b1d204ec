"""What the in-place calls of a step are: which code, what view, made where, who sees its base."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

from noalias.audit.finding import Origin, Verdict
from noalias.audit.frames import forget_variables
from noalias.audit.sightings import Key, Sighting
from noalias.ownership import explain as ownership

if TYPE_CHECKING:
    from noalias.audit.hooks import HookLines
    from noalias.native.core import Call, Core, ViewHistory

_FILLS = ("aten::copy_", "aten::fill_", "aten::zero_", "aten::index_put_", "aten::masked_fill_")
"""What ``base[...] = value`` calls: nothing of the slice's old value is needed."""

_MAKES_VIEW = (
    "aten::select", "aten::slice", "aten::view", "aten::reshape", "aten::narrow", "aten::diagonal",
    "aten::transpose", "aten::permute", "aten::unsqueeze", "aten::squeeze", "aten::expand",
    "aten::flatten", "aten::chunk", "aten::split", "aten::unbind", "aten::as_strided", "aten::t",
)  # fmt: skip

_REFUSALS = ("is a view and is being modified inplace", "is being modified inplace", "a leaf ")
"""In the messages of PyTorch that NA302 is about."""


class Writes:
    """Sorts in-place calls on views into findings. Holds no tensor.

    Args:
        seen: the recorder's sightings, which are added to.
        hooks: where hooks were set.
        origin: an operator and a line by its number.
    """

    def __init__(
        self,
        core: Core,
        seen: dict[Key, Sighting],
        hooks: HookLines,
        origin: Callable[[str, int], Origin],
    ) -> None:
        self._core = core
        self._seen = seen
        self._hooks = hooks
        self._origin = origin
        self._made_by: dict[int, Call | None] = {}
        self._last: tuple[Key, int] | None = None

    def end_step(self) -> None:
        """Addresses of bases mean nothing any more."""
        self._last = None
        self._made_by.clear()

    def told(self, operator: str, tensor: Tensor, proof: str) -> None:
        """A call that will write to a view; ``proof`` is what is known of its base."""
        view = self._core.view_history(tensor)
        call = self._core.current_call()
        hooked = view.hooks > 0 and (bool(tensor._backward_hooks) or tensor._backward_hooks is None)
        if hooked:
            code = "NA301"
        elif proof == "hidden":
            code = "NA101"
        elif view.share < 1 and operator in _FILLS:
            code = "NA201"
        else:
            code = "NA102"
        if code == "NA201" and "slice_update" in self._core.active_cures():
            return  # its cure is on: backward updates the slice in place
        maker = self._note_maker(view, call)
        key = Key(code, call.place, call.module, operator)
        sighting = self._seen.get(key)
        if sighting is None:
            sighting = self._seen[key] = self._first_sight(tensor, view, maker, proof)
            if hooked:
                set_at = self._hooks.place(tensor)
                name = "Tensor.register_hook" if tensor._backward_hooks else "Node.register_hook"
                sighting.hook = self._origin(name, set_at) if set_at else Origin(name)
        elif view.base_bytes > sighting.bytes:
            sighting.bytes, sighting.shape = view.base_bytes, tuple(tensor.shape)
        sighting.occurs(view.base)
        self._last = (key, view.base)

    def maker(self, view: ViewHistory) -> Call | None:
        """The call that made the view, also where a write has given it another history since."""
        if view.rewritten:
            return self._made_by.get(view.base)
        return self._core.call_behind(view.made, view.thread) if view.made >= 0 else None

    def _note_maker(self, view: ViewHistory, call: Call) -> Call | None:
        # An address is a base's name only while the base lives; a rewritten history needs it.
        if view.base not in self._made_by or not view.rewritten:
            self._made_by[view.base] = self._find_maker(view, call)
        return self._made_by[view.base]

    def _find_maker(self, view: ViewHistory, call: Call) -> Call | None:
        """How the view was made: by the node it has, or by a call on the same line just before."""
        if view.made >= 0 and not view.rewritten:
            return self._core.call_behind(view.made, view.thread)
        for before in self._core.calls_before(4):
            if before.place == call.place and before.op in _MAKES_VIEW:
                return before
        return None

    def _first_sight(
        self, tensor: Tensor, view: ViewHistory, maker: Call | None, proof: str
    ) -> Sighting:
        verdict: Verdict = "hidden" if proof == "hidden" else "observable"
        if proof == "no_storage":
            verdict = "unknown"
        observers = () if verdict == "hidden" else self._observers(tensor)
        return Sighting(
            tuple(tensor.shape),
            str(tensor.dtype),
            view.base_bytes,
            verdict,
            observers,
            None if maker is None else self._origin(maker.op, maker.place),
            view.node.rpartition("::")[2],
        )

    def _observers(self, tensor: Tensor) -> tuple[str, ...]:
        found = ownership.explain(tensor).observers
        forget_variables()
        return tuple(dict.fromkeys(found))

    def refused(self, operator: str, tensor: Tensor, message: str) -> None:
        """A call that failed with this message (NA302, where it is about views)."""
        call = self._core.current_call()
        if self._last is not None:
            # It was told as a write just before.
            key, base = self._last
            if (key.place, key.module, key.operator) == (call.place, call.module, operator):
                self._take_back(key, base)
        if not any(text in message for text in _REFUSALS):
            return
        key = Key("NA302", call.place, call.module, operator)
        if key not in self._seen:
            facts = self._core.facts_about(tensor)
            view = self._core.view_history(tensor)
            proof = facts.verdict if facts.is_view else "leaf"
            self._seen[key] = self._first_sight(tensor, view, self._note_maker(view, call), proof)
            self._seen[key].detail = message.partition("\n")[0]
            if not facts.is_view:
                self._seen[key].bytes = tensor.numel() * tensor.element_size()
        self._seen[key].occurs()

    def _take_back(self, key: Key, base: int) -> None:
        sighting = self._seen.get(key)
        self._last = None
        if sighting is None:
            return
        sighting.count -= 1
        sighting.on_base[base] -= 1
        if sighting.count == 0:
            del self._seen[key]
