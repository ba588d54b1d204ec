"""Remembers which line set a hook on a tensor, for the hooks that stock PyTorch drops."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from noalias.native.core import Core

_MOST = 4096
"""Registrations that are remembered: the last ones. Those of a step are what is asked for."""


class HookLines:
    """Stands in front of ``Tensor.register_hook`` while it is started. Holds no tensor, no hook."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._places: OrderedDict[int, int] = OrderedDict()
        self._stock: Callable[..., RemovableHandle] | None = None
        self._ours: object = None

    def start(self) -> None:
        stock: Callable[..., RemovableHandle] = Tensor.register_hook

        @functools.wraps(stock)
        def register_hook(tensor: Tensor, *args: object, **kwargs: object) -> RemovableHandle:
            handle = stock(tensor, *args, **kwargs)
            self._places[handle.id] = self._core.current_call().place
            if len(self._places) > _MOST:
                self._places.popitem(last=False)
            return handle

        self._stock, self._ours = stock, register_hook
        Tensor.register_hook = register_hook  # type: ignore[method-assign, assignment]

    def stop(self) -> None:
        if self._stock is not None and Tensor.register_hook is self._ours:
            Tensor.register_hook = self._stock  # type: ignore[method-assign]
        self._stock = None

    def place(self, tensor: Tensor) -> int:
        """The line that set the latest hook on ``tensor``; 0 where it is not known."""
        for number in reversed(list(tensor._backward_hooks or ())):
            if number in self._places:
                return self._places[number]
        return 0
