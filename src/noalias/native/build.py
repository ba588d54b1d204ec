"""Compile the core for exactly the installed PyTorch."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from noalias.native import cache, toolchain
from noalias.native.errors import NativeUnavailable


def _escape(text: str) -> str:
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def ninja_file(compiler: toolchain.Compiler, folder: Path) -> str:
    includes = " ".join(f"-isystem {shlex.quote(str(p))}" for p in toolchain.include_paths())
    libraries = " ".join(f"-L{shlex.quote(str(p))}" for p in toolchain.library_paths())
    cxx = shlex.join(compiler.command)
    objects: list[str] = []
    lines = [
        "ninja_required_version = 1.3",
        "rule compile",
        f"  command = {cxx} -MMD -MF $out.d {shlex.join(toolchain.compile_flags())} {includes} -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {cxx} $in {libraries} {shlex.join(toolchain.link_flags())} -o $out",
    ]
    for source in toolchain.sources():
        name = f"{source.stem}.o"
        objects.append(name)
        lines.append(f"build {name}: compile {_escape(str(source))}")
    lines += [f"build {toolchain.MODULE}.so: link {' '.join(objects)}", f"default {toolchain.MODULE}.so", ""]
    return "\n".join(lines)


def ensure() -> Path:
    """The library's path, built when it is not there."""
    compiler = toolchain.require_compiler()
    root = cache.root()
    key = cache.key(compiler)
    library = root / key / f"{toolchain.MODULE}.so"
    if library.is_file():
        return library
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if library.is_file():
            return library
        print("noalias: compiling the core", file=sys.stderr)
        work = Path(tempfile.mkdtemp(prefix="build-", dir=root))
        (work / "build.ninja").write_text(ninja_file(compiler, work))
        jobs = os.environ.get("MAX_JOBS") or str(os.cpu_count() or 1)
        done = subprocess.run(
            [str(toolchain.require_ninja()), "-j", jobs, "-C", str(work)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )
        if done.returncode != 0:
            log = root / f"{key}.log"
            log.write_text(done.stdout)
            shutil.rmtree(work)
            raise NativeUnavailable(
                f"the compiler failed:\n{done.stdout[-4000:]}", fix="see the log", log=log
            )
        work.rename(root / key)
    return library
