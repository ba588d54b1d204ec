"""What the compiled module ``noalias_core`` offers, as a type.

The module is built on the user's machine, so no stub file can lie beside it: ``load()`` returns it
as this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class ViewFacts(Protocol):
    """What the proof saw of a tensor (``csrc/view_facts.h``)."""

    is_view: bool
    verdict: str
    base_owners: int
    storage_owners: int
    creation: str
    base_requires_grad: bool


class Core(Protocol):
    """The functions of ``noalias_core``."""

    __file__: str

    # linear (csrc/linear_python.cpp)

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

    def register_linear(
        self, general: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    ) -> None: ...

    def whole_capture(self) -> bool: ...

    def set_whole_capture(self, on: bool) -> None: ...

    def pattern_gradients(self) -> bool: ...

    def set_pattern_gradients(self, on: bool) -> None: ...

    def set_own_rule_question(self, question: Callable[[type], bool]) -> None: ...

    # the cures (csrc/python_module.cpp)

    def known_cures(self) -> list[str]: ...

    def enable_cure(self, name: str) -> None: ...

    def disable_cure(self, name: str) -> None: ...

    def active_cures(self) -> list[str]: ...

    def counters(self) -> dict[str, int]: ...

    def reset_counters(self) -> None: ...

    # who sees what, and events (csrc/python_ownership.cpp)

    def facts_about(self, tensor: Tensor) -> ViewFacts: ...

    def relation_to(self, tensor: Tensor, other: Tensor) -> str: ...

    def release_hidden_base(self, tensor: Tensor) -> bool: ...

    def set_listener(self, listener: Callable[..., None] | None) -> None: ...
