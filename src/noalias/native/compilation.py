"""Run the compiler over the core's sources, with ninja, in a folder of its own.

The build file is written here from the public parts of ``torch.utils.cpp_extension`` (include and
library paths). Its ``load`` is not used: it shares one folder between all builds of a name, loads
what it built from there, and up to 2.14 waits for ever on the lock of a killed build.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import zlib
from typing import TYPE_CHECKING

from noalias.native import progress, toolchain

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_UNITS = 2

# What a failed compiler says, and what to do about it.
_HINTS = (
    (r"No space left on device|Disk quota exceeded", "free some disk space, or set NOALIAS_CACHE"),
    (r"Killed signal terminated|out of memory", "compile with less memory: set MAX_JOBS=1"),
    (r"Permission denied|Read-only file system", "set NOALIAS_CACHE to a folder you can write"),
    (r"(unrecognized|unknown|invalid).{0,40}-std=", "install a newer compiler, or name one in CXX"),
    (r"Python\.h", "install Python's headers (apt install python3-dev)"),
    (r"cannot find -l", "reinstall torch from its wheel, which carries these libraries"),
    (
        r"(redefinition of|is ambiguous|arguments to function|invalid initialization).*anonymous",
        "names at file scope must differ in all of csrc, because its files are compiled together "
        "(Note [Two translation units])",
    ),
)


class CompileError(Exception):
    """The compiler or the linker failed.

    Attributes:
        output: all that was printed.
        fix: what to do about it.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        hints = (fix for pattern, fix in _HINTS if re.search(pattern, output))
        self.fix = next(hints, "name another C++ compiler in CXX, or report the log")
        errors = [
            line for line in output.splitlines() if re.search(r"\berror\b", line, re.IGNORECASE)
        ]
        shown = errors[:6] or output.splitlines()[-12:]
        super().__init__("\n".join(f"    {line}" for line in shown))


def build_file(compiler: toolchain.Compiler, count: int) -> str:
    """The text of ``build.ninja`` for ``count`` translation units, ``unit0.cc`` and so on.

    Raises:
        NativeUnavailable: headers are missing.
    """
    # Headers that are not ours are system headers: their warnings are not ours either.
    # csrc/absent stands in for headers that PyTorch's own include but that it does not install.
    paths = [*map(str, toolchain.include_paths()), "absent"]
    includes = [word for path in paths for word in ("-isystem", path)]
    libraries = [f"-L{path}" for path in toolchain.library_paths()]
    strict = ["-Werror"] if toolchain.strict() else []
    compile_words = [*compiler.command, *toolchain.compile_flags(), *strict, *includes]
    link_words = [*libraries, *toolchain.link_flags()]
    objects = [f"unit{index}.o" for index in range(count)]
    return "\n".join(
        [
            "rule compile",
            f"  command = {_command(compile_words)} -c $in -o $out",
            "rule link",
            f"  command = {_command(compiler.command)} $in {_command(link_words)} -o $out",
            *(f"build {name}: compile {name[:-2]}.cc" for name in objects),
            f"build {toolchain.LIBRARY}: link {' '.join(objects)}",
            "",
        ]
    )


def write_sources(sources: Mapping[str, bytes], folder: Path) -> int:
    """Write ``sources`` and the translation units made of them; returns the number of units.

    Note [Two translation units]
    Nine tenths of the time goes into reading PyTorch's headers, once for every translation unit.
    Two units take a quarter of the CPU time that one for each file does, and keep two cores busy.
    Which file is in which depends on its own name alone: every machine compiles the same text, and
    a new file moves no other. The price: names at file scope, in anonymous namespaces too, must
    differ in all of csrc.

    Copies are compiled, so that the library is that of its key even if a file is edited meanwhile;
    ``#line`` makes errors name the file they were copied from.
    """
    for name, text in sources.items():
        origin = json.dumps(str(toolchain.SOURCES / name))
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(f"#line 1 {origin}\n".encode() + text)
    units: dict[int, list[str]] = {}
    for name in sources:
        if name.endswith(".cpp"):
            units.setdefault(zlib.crc32(name.encode()) % _UNITS, []).append(name)
    for index, names in enumerate(units.values()):
        unit = "".join(f'#include "{name}"\n' for name in names)
        (folder / f"unit{index}.cc").write_text(unit, encoding="utf-8")
    return len(units)


def run(
    compiler: toolchain.Compiler, sources: Mapping[str, bytes], folder: Path, log: Path
) -> float:
    """Build the library in ``folder`` and write what was printed to ``log``.

    Returns:
        The seconds it took.

    Raises:
        CompileError: the compiler failed.
        NativeUnavailable: something a build needs is missing.
        OSError: ``folder`` or ``log`` cannot be written.
    """
    import torch

    ninja = toolchain.require_ninja()
    count = write_sources(sources, folder)
    (folder / "build.ninja").write_text(build_file(compiler, count), encoding="utf-8")
    command = [str(ninja), "-C", str(folder), "-j", str(toolchain.jobs())]
    # English messages for the hints above; temporary files where they are private.
    settings = {"LC_ALL": "C", "TMPDIR": str(folder)}
    start = time.perf_counter()
    with (
        progress.waiting(f"compiling the core for torch {torch.__version__}"),
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=os.environ | settings,
            umask=0o077,
        ) as process,
    ):
        try:
            output, _ = process.communicate()
        except BaseException:
            # Not killed: ninja ends the compilers it started.
            process.terminate()
            raise
    seconds = time.perf_counter() - start
    output = f"{compiler.version()}\n{shlex.join(command)}\n{output}"
    failed = CompileError(output) if process.returncode != 0 else None
    try:
        log.write_text(output, encoding="utf-8")
    except OSError:
        # What the compiler says matters more than that it cannot be kept.
        if failed is None:
            raise
    if failed is not None:
        raise failed
    return seconds


def _command(words: list[str] | tuple[str, ...]) -> str:
    return shlex.join(words).replace("$", "$$")
