"""Build and load the C++ core."""

from __future__ import annotations

from noalias.native.core import Core, ViewFacts
from noalias.native.errors import NativeUnavailable
from noalias.native.loader import is_loaded, load, try_load

__all__ = ["Core", "NativeUnavailable", "ViewFacts", "is_loaded", "load", "try_load"]
