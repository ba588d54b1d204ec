"""How far a measurement has come, for whoever watches it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """Told by every measurement what it is about to do, and of each unit done."""

    def begin(self, label: str, units: int) -> None: ...

    def advance(self) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, label: str, units: int) -> None:
        pass

    def advance(self) -> None:
        pass


class Bar:
    """One line on a rich progress display; each `begin` starts it afresh."""

    def __init__(self, display: RichProgress) -> None:
        self._display = display
        self._task: TaskID | None = None

    def begin(self, label: str, units: int) -> None:
        if self._task is not None:
            self._display.remove_task(self._task)
        self._task = self._display.add_task(label, total=units)

    def advance(self) -> None:
        if self._task is not None:
            self._display.advance(self._task)
