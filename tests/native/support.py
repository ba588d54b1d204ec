"""Other processes, and compilers that wait to be told."""

from __future__ import annotations

import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

Spawn = Callable[..., "subprocess.Popen[str]"]


def result(process: subprocess.Popen[str]) -> str:
    """What the process printed; fails with its stderr when it did not end well."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def slow_compiler(folder: Path, *, then: str) -> Path:
    """A compiler that makes a file ``started`` and waits for one named ``go``."""
    path = folder / "slow-g++"
    path.write_text(
        '#!/bin/sh\ncase "$*" in *" -c "*)\n'
        f"touch {folder}/started\n"
        f"for i in $(seq 600); do test -e {folder}/go && break; sleep 0.05; done\n"
        f"{then};;\nesac\n"
        'exec g++ "$@"\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def wait_for(path: Path, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear in {seconds} s"
        time.sleep(0.02)


def modes(folder: Path) -> dict[str, int]:
    """The permissions of a folder and of what is in it, by name."""
    return {path.name: path.stat().st_mode & 0o777 for path in [folder, *folder.iterdir()]}
