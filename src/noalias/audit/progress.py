"""One line on stderr while the audited program runs; silent where that is no terminal."""

from __future__ import annotations

import os
import sys
import time

from noalias.audit.report.units import plural

_EVERY = 0.5
"""Seconds between two updates."""


class Progress:
    """The line is written over by the program's next output, which stays readable."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began = time.monotonic()
        self._last = 0.0

    def show(self, steps: int, seen: int) -> None:
        """Say how far the program is; at most twice a second."""
        now = time.monotonic()
        if not self._on or now - self._last < _EVERY:
            return
        self._last = now
        text = (
            f"noalias audit: {plural(steps, 'step')}, {plural(seen, 'line')} seen, "
            f"{now - self._began:.0f} s"
        )
        self._write(f"\r\x1b[K{text}\r")

    def clear(self) -> None:
        """Take the line away."""
        if self._on and self._last:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
