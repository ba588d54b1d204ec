"""Counts the steps of a training run."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from noalias import native

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class EnoughSteps(SystemExit):
    """Ends the program after the steps that were asked for, as ``sys.exit(0)`` would."""

    def __init__(self, steps: int) -> None:
        super().__init__(0)
        self.steps = steps


class StepCounter:
    """Optimizer steps, or backward calls where no optimizer runs.

    A step is one ``step()`` of the optimizer that stepped first: a program with two optimizers
    trains them in turns, and half a turn is not a step.

    The first step's backward comes before its optimizer has ever stepped. With `foresee` it is
    looked for among all objects, which takes a tenth of a second, so that backward calls before it
    are no steps. Otherwise they are, and counting starts again from 1 when an optimizer steps.

    Args:
        done: called when a step is done, with how many have been.
        most: after this many steps `EnoughSteps` is raised, where the program is.
        foresee: for those who act at certain steps.
    """

    def __init__(
        self, done: Callable[[int], None], most: int | None = None, *, foresee: bool = True
    ) -> None:
        self._done = done
        self._most = most
        self._foresee = foresee
        self._optimizer: weakref.ref[torch.optim.Optimizer] | None = None
        self._handle: RemovableHandle | None = None
        self._has_optimizer: bool | None = None
        self._optimizer_steps = 0
        self._backward_steps = 0
        self.backward_calls = 0

    @property
    def steps(self) -> int:
        return self._optimizer_steps or self._backward_steps

    @property
    def has_optimizer(self) -> bool:
        """Whether steps are an optimizer's."""
        return bool(self._has_optimizer)

    def start(self) -> None:
        self._handle = register_optimizer_step_post_hook(self._stepped)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def backward_begins(self) -> None:
        """A backward call was made; it may yet fail."""
        self.backward_calls += 1

    def backward_done(self) -> None:
        """A backward call has ended well."""
        if self._has_optimizer is None and self._foresee:
            self._has_optimizer = native.load().has_live_object_of(torch.optim.Optimizer)
        if not self._has_optimizer:
            self._backward_steps += 1
            self._end_step()

    def _stepped(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if self._optimizer is None:
            self._optimizer = weakref.ref(optimizer)
            self._has_optimizer = True
        if self._optimizer() is optimizer:
            self._optimizer_steps += 1
            self._end_step()

    def _end_step(self) -> None:
        self._done(self.steps)
        if self._most is not None and self.steps >= self._most:
            raise EnoughSteps(self.steps)
