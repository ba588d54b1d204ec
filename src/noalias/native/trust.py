"""Whether a place may be loaded from.

A library that is loaded runs with all the user's rights. So everything on the way to it must belong
to the user or to root, and nobody else may be able to write there.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(NativeUnavailable):
    """A folder or file that somebody else could have written."""


def check_root(root: Path) -> None:
    """Refuse a cache folder that somebody else owns or may write, or may swap for another.

    Args:
        root: an existing folder; symbolic links are followed.

    Raises:
        Untrusted: naming the folder, the owner or mode, and the fix.
    """
    real = root.resolve()
    _check(real, "the cache folder")
    for parent in real.parents:
        mode = parent.stat().st_mode
        # In a sticky folder (/tmp) only the owner of an entry may rename it.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Untrusted(
                f"{parent}, which holds the cache folder {root}, is writable by everybody "
                f"(mode {stat.S_IMODE(mode):04o})",
                fix=f"chmod o-w {parent}, or set NOALIAS_CACHE to a private folder",
            )


def check_inside(paths: Iterable[Path]) -> None:
    """Refuse folders and files below a checked root that somebody else owns or may write.

    Raises:
        Untrusted: naming the path; symbolic links are refused too.
    """
    for path in paths:
        if path.is_symlink():
            raise Untrusted(f"{path} is a symbolic link", fix=f"rm {path}")
        _check(path, "the cached core")


def _check(path: Path, what: str) -> None:
    status = path.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise Untrusted(
            f"{what} {path} belongs to another user (uid {status.st_uid}, you are {os.geteuid()})",
            fix="set NOALIAS_CACHE to a folder of your own",
        )
    if status.st_mode & _OTHERS_WRITE:
        raise Untrusted(
            f"{what} {path} is writable by others (mode {stat.S_IMODE(status.st_mode):04o})",
            fix=f"chmod -R go-w {path}, or set NOALIAS_CACHE to a private folder",
        )
