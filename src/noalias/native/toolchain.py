"""What a build needs: the compiler, ninja, and the headers and libraries of the installed PyTorch."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from noalias.native.errors import NativeUnavailable

SOURCES = Path(__file__).parent / "csrc"
MODULE = "noalias_core"

_WARNINGS = ("-Wall", "-Wextra", "-Werror")
_COMPILE = ("-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden", *_WARNINGS)


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler and what tells it from another one without running it."""

    command: tuple[str, ...]
    path: Path
    size: int
    mtime_ns: int

    @property
    def identity(self) -> str:
        return f"{shlex.join(self.command)} {self.path} {self.size} {self.mtime_ns}"

    def version(self) -> str:
        """The first line of ``--version``."""
        out = subprocess.run(
            [*self.command, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
        return (out.stdout or out.stderr).partition("\n")[0].strip()


def find_compiler() -> Compiler | None:
    """``$CXX``, else the platform's default: ``c++``, ``g++`` or ``clang++``."""
    named = os.environ.get("CXX")
    candidates = [tuple(shlex.split(named))] if named else [("g++",), ("c++",), ("clang++",)]
    if not named and sys.platform == "darwin":
        candidates = [("clang++",), ("c++",)]
    for command in candidates:
        found = shutil.which(command[0]) if command else None
        if found is None:
            continue
        # A wrapper (ccache) is named together with the compiler behind it.
        path = Path(found).resolve()
        stat = path.stat()
        return Compiler((found, *command[1:]), path, stat.st_size, stat.st_mtime_ns)
    return None


def require_compiler() -> Compiler:
    compiler = find_compiler()
    if compiler is not None:
        return compiler
    named = os.environ.get("CXX")
    reason = f"CXX={named!r} is no program on PATH" if named else "no C++ compiler on PATH"
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install g++"
    raise NativeUnavailable(reason, fix=f"{install}, or set CXX to a C++ compiler")


def require_ninja() -> Path:
    """The ninja of this environment, else the one on PATH."""
    beside = Path(sys.executable).parent / "ninja"
    if beside.is_file() and os.access(beside, os.X_OK):
        return beside
    found = shutil.which("ninja")
    if found is not None:
        return Path(found)
    raise NativeUnavailable("ninja is not installed", fix=f"{sys.executable} -m pip install ninja")


def cxx_standard() -> str:
    """The C++ standard ``torch.utils.cpp_extension`` compiles with."""
    import torch

    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return "c++20" if (major, minor) >= (2, 12) else "c++17"


def compile_flags() -> list[str]:
    """All compile flags but the include paths; part of the cache key."""
    import torch

    return [
        f"-std={cxx_standard()}",
        *_COMPILE,
        f"-DTORCH_EXTENSION_NAME={MODULE}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *shlex.split(os.environ.get("NOALIAS_CXXFLAGS", "")),
    ]


def link_flags() -> list[str]:
    flags = ["-shared", "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    return [*flags, *shlex.split(os.environ.get("NOALIAS_LDFLAGS", ""))]


def include_paths() -> list[Path]:
    """Headers of PyTorch and Python; every one is checked, for a clear message."""
    # Imported here: it imports setuptools, and a cached core must load without it.
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise NativeUnavailable(
            f"torch.utils.cpp_extension cannot be imported ({error})",
            fix=f"{sys.executable} -m pip install setuptools",
        ) from error
    torch_paths = [Path(path) for path in cpp_extension.include_paths()]
    if not any((path / "torch" / "csrc" / "autograd" / "function.h").is_file() for path in torch_paths):
        raise NativeUnavailable(
            f"PyTorch's headers are not in {torch_paths[0]}",
            fix="reinstall PyTorch from its wheel, which carries them",
        )
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise NativeUnavailable(
            f"Python's headers are not in {python} (Python.h is missing)",
            fix=f"apt install python{version}-dev",
        )
    return [*torch_paths, python]


def library_paths() -> list[Path]:
    from torch.utils import cpp_extension

    return [Path(path) for path in cpp_extension.library_paths()]


def sources() -> list[Path]:
    """The core's translation units, sorted."""
    return sorted(SOURCES.glob("*.cpp"))
