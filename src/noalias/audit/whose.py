"""Whose code a file holds: the user's, an installed library's, or the machinery's."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path

import torch

import noalias

ENGINE, LIBRARY, USER = 0, 1, 2
"""What the core's `places.cpp` expects: PyTorch, Python and noalias; a library; the user."""

_INSTALLED = ("/site-packages/", "/dist-packages/")
# Written by a program at run time, but not by its author.
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs ", "<torch_package")


class Whose:
    """Classifies file names; `also_users` are files of noalias' own to count as a user's."""

    def __init__(self, also_users: tuple[str, ...] = ()) -> None:
        self._also_users = also_users
        self._engine = tuple(
            str(Path(module.__file__ or "").parent) + os.sep for module in (torch, noalias)
        )
        paths = sysconfig.get_paths()
        installed = [paths["purelib"], paths["platlib"], *site.getsitepackages()]
        self._installed = tuple({path.rstrip(os.sep) + os.sep for path in installed})
        self._python = tuple(
            {paths[name].rstrip(os.sep) + os.sep for name in ("stdlib", "platstdlib")}
        )

    def __call__(self, file: str) -> int:
        """`ENGINE`, `LIBRARY` or `USER` for the ``co_filename`` of a code object."""
        if file in self._also_users:
            return USER
        if file.startswith(self._engine) or file.startswith(_GENERATED):
            return ENGINE
        if file.startswith(self._installed) or any(part in file for part in _INSTALLED):
            return LIBRARY
        return ENGINE if file.startswith(self._python) else USER
