"""One build at a time for each core, however many processes want it.

Note [Kernel locks]
The lock is ``flock``: the kernel drops it when its holder dies, so a killed build never blocks the
next one. A lock that is a file's existence (the baton of ``torch.utils.cpp_extension.load`` before
2.15) outlives its holder and is waited for until somebody deletes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noalias.native import progress
from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_POLL_SECONDS = 0.1
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def exclusive(path: Path, *, patience: float = 1800.0) -> Iterator[tuple[bool, bool]]:
    """Hold ``path``'s lock, waiting with a message while another process holds it.

    Args:
        path: the lock file; created, never deleted (deleting it would let two processes each lock
            a file of that name).
        patience: seconds to wait.

    Yields:
        Whether the lock is held, and whether another process held it first. Not held means a
        filesystem without locks, which is said on stderr: a build is then still correct (it is
        renamed into place), but may happen more than once.

    Raises:
        NativeUnavailable: the holder did not finish within ``patience``.
        OSError: the file cannot be created.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    held = False
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, 0o600)
        held, waited = _acquire(descriptor, path, patience)
        if held:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield held, waited
    finally:
        if held:
            # Not left to close(): a child forked meanwhile has the same open file.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, patience: float) -> tuple[bool, bool]:
    try:
        if _try(descriptor):
            return True, False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        progress.say(
            f"{path.parent} is on a filesystem without file locks ({error.strerror}); "
            "several processes may compile the core at once"
        )
        return False, False
    deadline = time.monotonic() + patience
    with progress.waiting(f"waiting for process {_holder(descriptor)}, which compiles the core"):
        while not _try(descriptor):
            if time.monotonic() > deadline:
                raise NativeUnavailable(
                    f"process {_holder(descriptor)} has held {path} for {patience:.0f} s",
                    fix="end that process, or set NOALIAS_CACHE to another folder",
                )
            time.sleep(_POLL_SECONDS)
    return True, True


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "?"
