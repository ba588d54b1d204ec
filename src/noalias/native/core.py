"""What the compiled module ``noalias_core`` offers, as a type.

The module is built on the user's machine, so no stub file can lie beside it: ``load()`` returns it
as this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class Core(Protocol):
    """The functions of ``noalias_core``."""

    __file__: str

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

    def register_linear(
        self, general: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    ) -> None: ...

    def set_whole_capture(self, on: bool) -> None: ...

    def set_own_rule_question(self, question: Callable[[type], bool]) -> None: ...

    def known_cures(self) -> list[str]: ...

    def enable_cure(self, name: str) -> None: ...

    def disable_cure(self, name: str) -> None: ...

    def active_cures(self) -> list[str]: ...

    def counters(self) -> dict[str, int]: ...

    def reset_counters(self) -> None: ...

    def observers(self, tensor: Tensor) -> list[dict[str, Any]]: ...

    def set_listener(self, listener: Callable[..., None] | None) -> None: ...
