"""Leaves no trace of having looked at the variables of running functions."""

from __future__ import annotations

import inspect
import sys
from typing import cast

from noalias.ownership.observers import running_frames


def forget_variables() -> None:
    """Up to Python 3.12 reading ``f_locals`` leaves references to a function's variables in its
    frame until it returns: owners that the program does not have. Dictionaries that somebody else
    holds, from ``locals()``, are left alone."""
    if sys.version_info >= (3, 13):
        return
    for frame in running_frames():
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            snapshot = cast("dict[str, object]", frame.f_locals)
            if sys.getrefcount(snapshot) <= 3:  # the frame, this name, and the call itself
                snapshot.clear()
