"""Which module's forward is running, by its path from the outermost one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from noalias.native.core import Core

Returned = Callable[[object, int], None]


class ModulePaths:
    """Numbers for module paths; the core keeps the stack of those that are running.

    A path is what ``named_modules()`` of the outermost running module calls it, ``blocks.0.act``;
    the outermost itself goes by the name of its class. Modules are held while their forward runs,
    and weakly otherwise. While ``torch.compile`` traces, nothing happens here, and the trace has no
    sign of it.

    Args:
        watching: who is called with a module's output and the number of its path.
    """

    def __init__(self, core: Core, watching: list[Returned]) -> None:
        self._core = core
        self._watching = watching
        self._paths: list[str] = [""]
        self._known: dict[str, int] = {"": 0}
        self._numbers: WeakKeyDictionary[Module, WeakKeyDictionary[Module, int]] = (
            WeakKeyDictionary()
        )
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Hook every module's forward."""
        # These run for each module of a step: no more Python in them than has to be.
        is_compiling = torch.compiler.is_compiling
        enter, leave, watching = self._core.enter_module, self._core.leave_module, self._watching

        def before(module: Module, inputs: object) -> None:
            if not is_compiling():
                enter(module)

        def after(module: Module, inputs: object, output: object) -> None:
            if not is_compiling():
                number = leave(module)
                if watching and number is not None:
                    for returned in watching:
                        returned(output, number)

        self._core.start_modules(self._number_of)
        self._handles = [
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, always_call=True),
        ]

    def stop(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._core.stop_modules()

    def path(self, number: int) -> str:
        """The path with this number; "" outside modules."""
        return self._paths[number]

    def _number_of(self, root: Module, module: Module, parent: int) -> int:
        numbers = self._numbers.get(root)
        if numbers is None or module not in numbers:
            numbers = self._name_all(root)
        if module not in numbers:
            # It is no submodule of the outermost: made on the fly, or kept in a plain list.
            name = f"{self.path(parent)}.({type(module).__name__})".lstrip(".")
            numbers[module] = self._number(name)
        return numbers[module]

    def _name_all(self, root: Module) -> WeakKeyDictionary[Module, int]:
        numbers: WeakKeyDictionary[Module, int] = WeakKeyDictionary()
        for name, module in root.named_modules():
            numbers[module] = self._number(name or type(root).__name__)
        self._numbers[root] = numbers
        return numbers

    def _number(self, path: str) -> int:
        if path not in self._known:
            self._known[path] = len(self._paths)
            self._paths.append(path)
        return self._known[path]
