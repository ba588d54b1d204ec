"""What programs run under: stock PyTorch, the cures of noalias, or a broken cure."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from .mutations import MUTATIONS

Cure = Callable[[], contextlib.AbstractContextManager[object]]


def cure(names: str) -> Cure:
    """The context for ``none``, ``all``, cure names with commas between, or ``broken:NAME``."""
    if names == "none":
        return contextlib.nullcontext
    if names.startswith("broken:"):
        return MUTATIONS[names.removeprefix("broken:")]
    import noalias

    wanted = () if names == "all" else tuple(names.split(","))
    return lambda: noalias.enabled(*wanted)


def counters() -> dict[str, int]:
    """The core's own counts, empty where it is not loaded."""
    try:
        from noalias import native
    except ImportError:
        return {}
    return dict(native.load().counters()) if native.is_loaded() else {}
