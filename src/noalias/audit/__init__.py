"""`noalias audit`: what a training step pays for aliases, where, and why.

``import noalias.audit`` is cheap: the recorder, and with it PyTorch, is imported when `audit` is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noalias.audit.finding import Finding as Finding
    from noalias.audit.record import audit as audit
    from noalias.audit.result import Report as Report

_HOMES = {
    "Finding": "noalias.audit.finding",
    "Report": "noalias.audit.result",
    "audit": "noalias.audit.record",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
