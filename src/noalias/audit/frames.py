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
    for frame in sys._current_frames().values():
        current: FrameType | None = frame
        while current is not None:
            if current.f_code.co_flags & inspect.CO_OPTIMIZED:
                snapshot = cast("dict[str, object]", current.f_locals)
                if sys.getrefcount(snapshot) <= 3:  # the frame, this name, and the call itself
                    snapshot.clear()
            current = current.f_back
