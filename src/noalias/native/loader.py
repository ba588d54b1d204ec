"""Load the core into this process: once, whichever thread asks first."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import threading
from typing import TYPE_CHECKING, cast

from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from noalias.native.cache import Entry
    from noalias.native.core import Core

MODULE = "noalias_core"

# Not None after importlib.reload, or where the package was imported anew: a process has one core,
# and keeps it, with the cures that are on.
_core = cast("Core | None", sys.modules.get(MODULE))
_lock = threading.Lock()


def is_loaded() -> bool:
    """Whether the core is in this process."""
    return _core is not None


def load() -> Core:
    """The core, compiled on first use and loaded once. Any thread may call it.

    Raises:
        NativeUnavailable: it cannot be built or loaded; the message names the reason, the fix and
            the log.
    """
    global _core
    if _core is None:
        with _lock:
            if _core is None:
                _core = _import()
    return _core


def try_load() -> Core | None:
    """``load``, or ``None`` where the core cannot be had."""
    try:
        return load()
    except NativeUnavailable:
        return None


def _import() -> Core:
    # Imported late: `import noalias.native` costs nothing.
    from noalias.native import build

    return _import_from(build.ensure())


def _import_from(entry: Entry) -> Core:
    import torch  # noqa: F401  # brings in the libraries that the core is linked with

    path = str(entry.library)
    file_loader = importlib.machinery.ExtensionFileLoader(MODULE, path)
    spec = importlib.machinery.ModuleSpec(MODULE, file_loader, origin=path)
    spec.has_location = True
    try:
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE] = module
        file_loader.exec_module(module)
    except ImportError as error:
        sys.modules.pop(MODULE, None)
        raise NativeUnavailable(
            f"{path} cannot be loaded: {error}", fix="noalias build --force", log=entry.log
        ) from error
    except BaseException:
        sys.modules.pop(MODULE, None)
        raise
    return cast("Core", module)


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


# A child forked while another thread builds would wait for ever on that thread's lock.
os.register_at_fork(after_in_child=_new_lock)
