"""FSDP2 and hidden bases.

FSDP2 puts a hook on every output of a module it shards, and from PyTorch 2.13 on warns that the
output "returned a view tensor" if it has a base: writing to it in place would lose the hook. Where
nobody can see that base, the hidden-base cure drops it at the write and keeps the hook, so there is
nothing to warn of. But FSDP2 looks before anybody writes: the base has to go first.

Needed of PyTorch: ``FSDPState._register_pre_backward_hook(output)`` in
``torch.distributed.fsdp._fully_shard._fsdp_state``, where 2.9.1 to 2.15.0 have it. Where it is gone
nothing is changed: the cure still works at the write, and FSDP2 warns.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from torch import Tensor
from torch.utils._pytree import tree_leaves

from noalias import native

_STATE = "torch.distributed.fsdp._fully_shard._fsdp_state"
_HOOK = "_register_pre_backward_hook"


def watch() -> None:
    """Release hidden bases before FSDP2 looks at outputs: now, or as soon as it is imported."""
    loaded = sys.modules.get(_STATE)
    if loaded is not None:
        _patch(loaded)
    elif not any(isinstance(finder, _AtImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AtImport())


def _patch(module: ModuleType) -> None:
    state = getattr(module, "FSDPState", None)
    stock = getattr(state, _HOOK, None)
    if state is None or stock is None or hasattr(stock, "__wrapped__"):
        return

    @functools.wraps(stock)
    def register(self: object, output: object) -> object:
        release(output)
        return stock(self, output)

    setattr(state, _HOOK, register)


def release(output: object) -> None:
    """Drop the hidden bases of the tensors in ``output``, any nesting, while the cure is on."""
    core = native.try_load() if native.is_loaded() else None
    if core is None or "hidden_base" not in core.active_cures():
        return
    for leaf in tree_leaves(output):
        if type(leaf) is Tensor and leaf._is_view():
            core.release_hidden_base(leaf)


class _AtImport(importlib.abc.MetaPathFinder):
    """Waits for FSDP2's module, patches it once it is imported, and leaves."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != _STATE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Patching(spec.loader)
        return spec


class _Patching(importlib.abc.Loader):
    def __init__(self, stock: importlib.abc.Loader) -> None:
        self._stock = stock

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._stock.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._stock.exec_module(module)
        _patch(module)
