"""Run the compiler over the core's sources, with ninja, in a folder of its own.

The build file is written here from the public parts of ``torch.utils.cpp_extension`` (include and
library paths). Its ``load`` is not used: it shares one folder between all builds of a name, loads
what it built from there, and up to 2.14 waits for ever on the lock of a killed build.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from typing import TYPE_CHECKING

from noalias.native import progress, toolchain

if TYPE_CHECKING:
    from pathlib import Path

_STATUS = re.compile(r"\[(\d+)/\d+\]")

# What a failed compiler says, and what to do about it.
_HINTS = (
    (r"No space left on device|Disk quota exceeded", "free some disk space, or set NOALIAS_CACHE"),
    (r"Killed signal terminated|out of memory", "compile with less memory: set MAX_JOBS=1"),
    (r"Permission denied|Read-only file system", "set NOALIAS_CACHE to a folder you can write"),
    (r"(unrecognized|unknown|invalid).{0,40}-std=", "install a newer compiler, or name one in CXX"),
    (r"Python\.h", "install Python's headers (apt install python3-dev)"),
    (r"cannot find -l", "reinstall torch from its wheel, which carries these libraries"),
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


def build_file(compiler: toolchain.Compiler) -> str:
    """The text of ``build.ninja``.

    Raises:
        NativeUnavailable: headers or sources are missing.
    """
    # Headers that are not ours are system headers: their warnings are not ours either.
    includes = [word for path in toolchain.include_paths() for word in ("-isystem", str(path))]
    libraries = [f"-L{path}" for path in toolchain.library_paths()]
    strict = ["-Werror"] if toolchain.strict() else []
    compile_words = [*compiler.command, *toolchain.compile_flags(), *strict, *includes]
    link_words = [*libraries, *toolchain.link_flags()]
    units = {f"{path.stem}.o": path for path in toolchain.sources()}
    return "\n".join(
        [
            "rule compile",
            f"  command = {_command(compile_words)} -c $in -o $out",
            "  description = $in",
            "rule link",
            f"  command = {_command(compiler.command)} $in {_command(link_words)} -o $out",
            "  description = $out",
            *(f"build {name}: compile {_path(str(path))}" for name, path in units.items()),
            f"build {toolchain.LIBRARY}: link {' '.join(units)}",
            "",
        ]
    )


def run(compiler: toolchain.Compiler, folder: Path, log: Path) -> float:
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
    (folder / "build.ninja").write_text(build_file(compiler), encoding="utf-8")
    command = [str(ninja), "-C", str(folder), "-j", str(toolchain.jobs())]
    # English messages for the hints above; temporary files where they are private.
    settings = {"NINJA_STATUS": "[%f/%t] ", "LC_ALL": "C", "TMPDIR": str(folder)}
    start = time.perf_counter()
    text = f"compiling the core for torch {torch.__version__}"
    lines = [f"{compiler.version()}\n{shlex.join(command)}\n"]
    with (
        log.open("w", encoding="utf-8", errors="replace") as file,
        progress.steps(text, len(toolchain.sources()) + 1) as advance,
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
            file.write(lines[0])
            for line in process.stdout or ():
                lines.append(line)
                file.write(line)
                if match := _STATUS.match(line):
                    advance(int(match[1]))
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise CompileError("".join(lines))
    return time.perf_counter() - start


def _command(words: list[str] | tuple[str, ...]) -> str:
    return shlex.join(words).replace("$", "$$")


def _path(path: str) -> str:
    return re.sub(r"([$ :])", r"$\1", path)
