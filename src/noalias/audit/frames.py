"""Leaves no trace of having looked at the variables of running functions."""

from __future__ import annotations

import inspect
import sys
from types import FrameType
from typing import cast


def forget_variables() -> None:
    """Up to Python 3.12 reading ``f_locals`` leaves references to a function's variables in its
    frame until it returns: owners that the program does not have. Dictionaries that somebody else
    holds, from ``locals()``, are left alone."""
    if sys.version_info >= (3, 13):
        return
    frames: list[FrameType | None] = list(sys._current_frames().values())
    while frames:
        # Emptied on the way: one of these is this very frame, and a name that is left for it would
        # be a cycle that keeps all outer frames, and what they hold, until the next collection.
        current = frames.pop()
        while current is not None:
            if current.f_code.co_flags & inspect.CO_OPTIMIZED:
                snapshot = cast("dict[str, object]", current.f_locals)
                if sys.getrefcount(snapshot) <= 3:  # the frame, this name, and the call itself
                    snapshot.clear()
            current = current.f_back
