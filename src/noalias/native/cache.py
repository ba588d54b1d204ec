"""Where built cores are kept, and how one is found, checked and put there.

::

    <root>/                      private (0700)
      core-torch2.13.0+cpu-cpython-311-x86_64-linux-gnu-<hash>/
        <compiler>/              one entry; renamed into place when complete
          noalias_core.so
          entry.json             its size, checksum and history; written last
          build.log
        <compiler>.lock
        <compiler>.log           of the last build that failed

The folder's hash covers everything the library depends on except the compiler: PyTorch's version,
commit and libraries, Python's ABI, flags, sources. The compiler is a level of its own, because a
machine without one (an image) loads a core that any compiler built for the rest of the key.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import sysconfig
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.native import toolchain, trust

if TYPE_CHECKING:
    from collections.abc import Mapping

ENTRY = "entry.json"
LOG = "build.log"
_SCHEMA = 1
_FOLDER = re.compile(r"core-torch[\w.+]+-[\w.-]+-[0-9a-f]{16}")


@dataclass(frozen=True)
class Entry:
    """One built core: ``entry.json``, with the folder it was read from."""

    folder: Path
    sha256: str
    size: int
    seconds: float
    built: str
    compiler: str
    strict: bool
    noalias: str
    torch: str

    @property
    def library(self) -> Path:
        return self.folder / toolchain.LIBRARY

    @property
    def log(self) -> Path | None:
        log = self.folder / LOG
        return log if log.is_file() else None

    def write(self) -> None:
        fields = asdict(self) | {"schema": _SCHEMA}
        del fields["folder"]
        with (self.folder / ENTRY).open("w", encoding="utf-8") as file:
            json.dump(fields, file, indent=2)
            file.flush()
            # After a power cut the checksum must not be there without the library it is of.
            os.fsync(file.fileno())


class Broken(Exception):
    """An entry whose library is not what its checksum says, or that has no readable checksum."""


def root() -> Path:
    """The cache folder: ``$NOALIAS_CACHE``, else ``noalias`` in the user's cache folder."""
    if named := os.environ.get("NOALIAS_CACHE"):
        return Path(named).expanduser().absolute()
    if sys.platform == "darwin":
        return Path("~/Library/Caches/noalias").expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "noalias"


def prebuilt() -> list[Path]:
    """Folders made by ``noalias build -o``, from ``$NOALIAS_PREBUILT``; only ever read."""
    named = os.environ.get("NOALIAS_PREBUILT", "")
    return [Path(part).expanduser().absolute() for part in named.split(os.pathsep) if part]


def key(sources: Mapping[str, bytes]) -> str:
    """The name of the folder for this PyTorch, this Python and these sources."""
    import torch

    soabi = str(sysconfig.get_config_var("SOABI"))
    # Two builds of one commit (PyPI, conda-forge, one's own) differ here and nowhere else.
    libraries = {
        path.name: path.stat().st_size
        for path in sorted((Path(torch.__file__).parent / "lib").glob("lib*"))
        if path.name.startswith(("libc10.", "libtorch_cpu.", "libtorch_python."))
    }
    parts = {
        "torch": [torch.__version__, torch.version.git_version, torch.version.cuda],
        "libraries": libraries,
        "python": [soabi, platform.machine()],
        "flags": toolchain.compile_flags() + toolchain.link_flags(),
        "sources": {name: _short(text) for name, text in sources.items()},
    }
    text = json.dumps(parts, sort_keys=True)
    return f"core-torch{torch.__version__}-{soabi}-{_short(text.encode())}"


def compiler_key(compiler: toolchain.Compiler) -> str:
    """The name of the entry for this compiler."""
    return _short(compiler.identity.encode())


def _short(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def read(folder: Path) -> Entry:
    """The entry in ``folder``, checked.

    Raises:
        Broken: it is truncated, altered or unreadable.
        Untrusted: somebody else could have written it.
    """
    try:
        trust.check_inside([folder.parent, folder, folder / toolchain.LIBRARY, folder / ENTRY])
        fields = json.loads((folder / ENTRY).read_text(encoding="utf-8"))
        if fields.pop("schema", None) != _SCHEMA:
            raise Broken(f"{folder / ENTRY} is of another format")
        entry = Entry(folder=folder, **fields)
        content = entry.library.read_bytes()
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Broken(f"{folder} is incomplete ({error})") from error
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise Broken(f"{entry.library} is not the library that was built (checksum differs)")
    return entry


def entries(place: Path, name: str, compiler: toolchain.Compiler | None) -> list[Path]:
    """Folders of entries for key ``name``: this compiler's, or all, newest first, without one."""
    if compiler is not None:
        found = [place / name / compiler_key(compiler)]
        return [path for path in found if path.is_dir()]
    found = [path.parent for path in (place / name).glob(f"*/{ENTRY}")]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def clean(place: Path) -> int:
    """Delete every built core in ``place``, and nothing else.

    Returns:
        The bytes freed.
    """
    freed = 0
    for folder in place.iterdir() if place.is_dir() else ():
        if _FOLDER.fullmatch(folder.name) and folder.is_dir() and not folder.is_symlink():
            freed += size(folder)
            shutil.rmtree(folder)
    return freed


def size(folder: Path) -> int:
    """Bytes of all files below ``folder``."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
