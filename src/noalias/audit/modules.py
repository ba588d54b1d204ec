"""Which module's forward is running, by its path from the outermost one."""

from __future__ import annotations

import threading
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


class _Stack(threading.local):
    def __init__(self) -> None:
        self.running: list[tuple[int, int]] = []  # (id of the module, number of its path)
        self.root: Module | None = None


class ModulePaths:
    """Numbers for module paths, and the core's idea of the one that is running.

    A path is what ``named_modules()`` of the outermost running module calls it, ``blocks.0.act``;
    the outermost itself goes by the name of its class. Modules are held weakly. While
    ``torch.compile`` traces, nothing happens here, and the trace has no sign of it.

    Args:
        returned: called with a module's output and the number of its path.
    """

    def __init__(self, core: Core, returned: Returned | None = None) -> None:
        self._core = core
        self._returned = returned
        self._paths: list[str] = [""]
        self._known: dict[str, int] = {"": 0}
        self._numbers: WeakKeyDictionary[Module, WeakKeyDictionary[Module, int]] = (
            WeakKeyDictionary()
        )
        self._stack = _Stack()
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Hook every module's forward."""
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    def stop(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._stack.running.clear()
        self._stack.root = None
        self._core.set_current_module(0)

    def path(self, number: int) -> str:
        """The path with this number; "" outside modules."""
        return self._paths[number]

    def _enter(self, module: Module, inputs: object) -> None:
        if torch.compiler.is_compiling():
            return
        stack = self._stack
        if not stack.running:
            stack.root = module
        number = self._number_of(module)
        stack.running.append((id(module), number))
        self._core.set_current_module(number)

    def _leave(self, module: Module, inputs: object, output: object) -> None:
        if torch.compiler.is_compiling():
            return
        stack = self._stack
        if (id(module), (number := self._number_of(module))) not in stack.running:
            return  # it was entered before the recording began
        # Normally one; more where an inner one was left by an exception.
        while stack.running.pop()[0] != id(module):
            pass
        self._core.set_current_module(stack.running[-1][1] if stack.running else 0)
        if not stack.running:
            stack.root = None
        if self._returned is not None:
            self._returned(output, number)

    def _number_of(self, module: Module) -> int:
        root = self._stack.root
        if root is None:
            return 0
        numbers = self._numbers.get(root)
        if numbers is None or module not in numbers:
            numbers = self._name_all(root)
        if module not in numbers:
            # It is no submodule of the outermost: made on the fly, or kept in a plain list.
            parent = self._stack.running[-1][1] if self._stack.running else 0
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
