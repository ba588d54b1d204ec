"""Build and load the C++ core."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import threading
from typing import TYPE_CHECKING, cast

from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from noalias.native.core import Core

__all__ = ["NativeUnavailable", "is_loaded", "load", "try_load"]

_lock = threading.Lock()
_core: Core | None = None


def is_loaded() -> bool:
    return _core is not None


def load() -> Core:
    """The core, built on first use. Thread-safe.

    Raises:
        NativeUnavailable: it cannot be built or loaded; the message says what to do.
    """
    global _core
    if _core is not None:
        return _core
    with _lock:
        if _core is None:
            from noalias.native import build, toolchain

            path = str(build.ensure())
            loader = importlib.machinery.ExtensionFileLoader(toolchain.MODULE, path)
            spec = importlib.util.spec_from_file_location(toolchain.MODULE, path, loader=loader)
            assert spec is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[toolchain.MODULE] = module
            loader.exec_module(module)
            _core = cast("Core", module)
    return _core


def try_load() -> Core | None:
    """The core, or ``None`` where it cannot be had."""
    try:
        return load()
    except NativeUnavailable:
        return None
