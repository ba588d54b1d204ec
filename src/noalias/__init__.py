"""Ownership for PyTorch's autograd.

Keep history for an alias only when somebody else can see the other side of it.

``import noalias`` imports neither PyTorch nor the C++ core: a public name is imported when it is
first used, and the core is compiled when it is first needed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from noalias import graph
    from noalias.audit.record import audit
    from noalias.linear.module import Linear, convert
    from noalias.linear.op import linear
    from noalias.native import NativeUnavailable
    from noalias.ownership.cures import disable, enable, enabled, status
    from noalias.ownership.explain import explain

__all__ = [
    "Linear",
    "NativeUnavailable",
    "audit",
    "convert",
    "disable",
    "enable",
    "enabled",
    "explain",
    "graph",
    "linear",
    "status",
]

# Public name -> the module that defines it.
_HOMES = {
    "Linear": "noalias.linear.module",
    "NativeUnavailable": "noalias.native",
    "audit": "noalias.audit.record",
    "convert": "noalias.linear.module",
    "disable": "noalias.ownership.cures",
    "enable": "noalias.ownership.cures",
    "enabled": "noalias.ownership.cures",
    "explain": "noalias.ownership.explain",
    "linear": "noalias.linear.op",
    "status": "noalias.ownership.cures",
}


class _Package(ModuleType):
    """This module's class.

    ``linear`` and ``audit`` name a function here and a subpackage. The import system would bind the
    subpackage over the function as soon as anybody imports it.
    """

    def __getattr__(self, name: str) -> object:
        if name == "graph":
            return importlib.import_module("noalias.graph")
        if name not in _HOMES:
            raise AttributeError(f"module 'noalias' has no attribute {name!r}")
        value: object = getattr(importlib.import_module(_HOMES[name]), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = _Package
