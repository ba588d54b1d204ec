"""Find the core for the installed PyTorch, or build it: once, whoever asks, however often.

Note [A build appears whole or not at all]
A build happens in a temporary folder inside the cache, under the lock of its entry. Its checksum is
written last, then the folder is renamed into place. A reader needs no lock: it sees no entry, or a
complete one. What a killed build leaves behind is deleted by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import sys
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import noalias
from noalias.native import cache, compilation, progress, toolchain, trust
from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def find(*, warn: bool = True) -> cache.Entry | None:
    """The core that is already there: in ``$NOALIAS_PREBUILT``, then in the cache.

    Takes no lock, writes nothing and runs no compiler.

    Args:
        warn: say on stderr that an entry is damaged, and why.

    Raises:
        Untrusted: a place on the way to it could have been written by somebody else.
    """
    name = cache.key(toolchain.sources())
    compiler = toolchain.find_compiler()
    for place in [*cache.prebuilt(), cache.root()]:
        if not (place / name).is_dir():
            continue
        trust.check_root(place)
        # Whoever built an image chose its compiler.
        exact = None if place in cache.prebuilt() else compiler
        for folder in cache.entries(place, name, exact):
            try:
                entry = cache.read(folder)
            except cache.Broken as error:
                if warn:
                    progress.say(f"a cached core is damaged and not used: {error}")
                continue
            if entry.strict or not toolchain.strict():
                return entry
    return None


def ensure(*, force: bool = False) -> cache.Entry:
    """The core for the installed PyTorch, compiled first if need be.

    Args:
        force: compile even when it is there.

    Raises:
        NativeUnavailable: it cannot be had; the message names the reason, the fix and the log.
    """
    if sys.platform == "win32":
        raise NativeUnavailable(
            "the core is not built on Windows yet", fix="use Linux, macOS or WSL"
        )
    if not force and (entry := find()):
        return entry
    return into(cache.root(), force=force)[0]


def into(place: Path, *, force: bool = False, shared: bool = False) -> tuple[cache.Entry, bool]:
    """Build the core into ``place``, unless it is there.

    Args:
        place: the cache folder, or the one to name in ``$NOALIAS_PREBUILT``.
        force: compile even when it is there.
        shared: readable by everybody (an image), instead of private.

    Returns:
        The core, and whether it was built by this call.

    Raises:
        NativeUnavailable: as for ``ensure``.
    """
    from noalias.native import lock

    compiler = toolchain.require_compiler()
    sources = toolchain.sources()
    folder = place / cache.key(sources)
    target = folder / cache.compiler_key(compiler)
    failure = folder / f"{target.name}.log"
    with _storage_errors(place):
        _make(place, shared=shared)
        trust.check_root(place)
        _make(folder, shared=shared)
        trust.check_inside([folder])
        earlier = _stamp(failure)
        with lock.exclusive(folder / f"{target.name}.lock") as (held, waited):
            if not force and (entry := _built_meanwhile(target)):
                return entry, False
            if waited and _stamp(failure) != earlier:
                raise NativeUnavailable(
                    "the process that compiled it failed",
                    fix="see its message, or the log",
                    log=failure,
                )
            if held:
                for left in folder.glob(f"tmp-{target.name}-*"):
                    shutil.rmtree(left, ignore_errors=True)
            return _build(compiler, sources, target, failure, shared=shared), True


def _build(
    compiler: toolchain.Compiler,
    sources: Mapping[str, bytes],
    target: Path,
    failure: Path,
    *,
    shared: bool,
) -> cache.Entry:
    import torch

    work = target.parent / f"tmp-{target.name}-{os.getpid()}-{secrets.token_hex(4)}"
    _make(work, shared=False)
    try:
        log = work / cache.LOG
        try:
            seconds = compilation.run(compiler, sources, work, log)
        except compilation.CompileError as error:
            kept = _keep(log, failure)
            reason = f"the compiler failed:\n{error}"
            raise NativeUnavailable(reason, fix=error.fix, log=kept) from error
        library = work / toolchain.LIBRARY
        content = library.read_bytes()
        entry = cache.Entry(
            folder=work,
            sha256=hashlib.sha256(content).hexdigest(),
            size=len(content),
            seconds=round(seconds, 2),
            built=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            compiler=compiler.version(),
            strict=toolchain.strict(),
            noalias=noalias.__version__,
            torch=torch.__version__,
        )
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path not in (library, log):
                path.unlink()
        entry.write()
        for path in (library, log, work / cache.ENTRY):
            path.chmod(0o644 if shared else 0o600)
        work.chmod(0o755 if shared else 0o700)
        _put(work, target)
        return cache.read(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put(work: Path, target: Path) -> None:
    """Rename ``work`` to ``target``, whatever is there now."""
    if target.exists():
        old = work.with_name(f"{work.name}-old")
        target.rename(old)
        work.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    else:
        work.rename(target)


def _built_meanwhile(target: Path) -> cache.Entry | None:
    if not target.is_dir():
        return None
    try:
        entry = cache.read(target)
    except cache.Broken:
        return None
    return entry if entry.strict or not toolchain.strict() else None


def _keep(log: Path, failure: Path) -> Path | None:
    """Move the log of a failed build to where it stays; ``None`` when the disk is full."""
    try:
        log.replace(failure)
        failure.chmod(0o644)
    except OSError:
        return None
    return failure


def _stamp(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _make(folder: Path, *, shared: bool) -> None:
    """Create ``folder`` with an exact mode, whatever the umask; leave an existing one alone."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        folder.chmod(0o755 if shared else 0o700)


_FIXES = {
    errno.EROFS: "is on a read-only filesystem",
    errno.EACCES: "cannot be written",
    errno.EPERM: "cannot be written",
    errno.ENOENT: "cannot be made",
    errno.ENOTDIR: "is no folder",
    errno.EEXIST: "is no folder",
    errno.ENOSPC: "is on a full disk",
    errno.EDQUOT: "is over its disk quota",
    errno.EFBIG: "is over its file size limit",
}


@contextmanager
def _storage_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = _FIXES.get(error.errno or 0)
        if what is None:
            raise
        room = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise NativeUnavailable(
            f"the cache folder {place} {what} ({error.strerror})",
            fix=(
                ("free some space there, or " if room else "")
                + "set NOALIAS_CACHE to a folder you can write, or build the core beforehand "
                "(noalias build -o DIR) and set NOALIAS_PREBUILT=DIR"
            ),
        ) from error
