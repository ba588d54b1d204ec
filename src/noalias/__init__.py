"""Ownership for PyTorch's autograd.

Keep history for an alias only when somebody else can see the other side of it.

``import noalias`` neither compiles nor loads the C++ core: each public name is imported, and the
core built, when it is first used.
"""

from __future__ import annotations

__version__ = "0.1.0"
