"""What a build needs: a compiler, ninja, and the headers and libraries of the installed PyTorch."""

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
from noalias.native.loader import MODULE

SOURCES = Path(__file__).parent / "csrc"
LIBRARY = f"{MODULE}.so"


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler, and what tells it from another one without running it."""

    command: tuple[str, ...]
    identity: str

    def version(self) -> str:
        """The first line of ``--version``."""
        done = subprocess.run(
            [*self.command, "--version"], capture_output=True, text=True, check=False, timeout=60
        )
        return (done.stdout or done.stderr).partition("\n")[0].strip()


def find_compiler() -> Compiler | None:
    """``$CXX``, else the platform's usual names on PATH."""
    if named := os.environ.get("CXX"):
        return _compiler(shlex.split(named))
    names = ("clang++", "c++", "g++") if sys.platform == "darwin" else ("g++", "c++", "clang++")
    return next((found for name in names if (found := _compiler([name]))), None)


def _compiler(words: list[str]) -> Compiler | None:
    found = shutil.which(words[0]) if words else None
    if found is None:
        return None
    # Every word that is a program counts: `ccache g++` is another compiler than `ccache clang++`.
    programs = [Path(path).resolve() for word in words if (path := shutil.which(word))]
    stats = [(path, path.stat()) for path in programs]
    parts = [f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats]
    return Compiler((found, *words[1:]), "; ".join([shlex.join(words[1:]), *parts]))


def require_compiler() -> Compiler:
    """``find_compiler``, or an error that says how to get one.

    Raises:
        NativeUnavailable: there is none.
    """
    if compiler := find_compiler():
        return compiler
    if named := os.environ.get("CXX"):
        raise NativeUnavailable(
            f"CXX={named!r} names no program on PATH",
            fix="set CXX to a C++ compiler, or unset it to use the default one",
        )
    install = "xcode-select --install" if sys.platform == "darwin" else "apt install g++"
    raise NativeUnavailable("there is no C++ compiler on PATH", fix=f"{install} (or set CXX)")


def require_ninja() -> Path:
    """The ninja of this Python environment, else the one on PATH.

    Raises:
        NativeUnavailable: there is none.
    """
    folders = [Path(sys.executable).parent]
    try:
        import ninja
    except ImportError:
        pass
    else:
        folders.append(Path(ninja.BIN_DIR))
    for folder in folders:
        if found := shutil.which("ninja", path=str(folder)):
            return Path(found)
    if found := shutil.which("ninja"):
        return Path(found)
    raise NativeUnavailable("ninja is not installed", fix=f"{sys.executable} -m pip install ninja")


def cxx_standard() -> str:
    """The C++ standard that this PyTorch's own ``cpp_extension`` compiles with."""
    import torch

    # C++17 up to 2.11, C++20 in 2.13 to 2.15 (2.12 was not looked at).
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    return "c++20" if (major, minor) >= (2, 12) else "c++17"


def compile_flags() -> list[str]:
    """The flags that shape the library; a part of its cache key."""
    import torch

    return [
        f"-std={cxx_standard()}",
        "-O2",
        # As PyTorch's own libraries: some of its classes have other members without it.
        "-DNDEBUG",
        "-fPIC",
        "-fvisibility=hidden",
        "-fvisibility-inlines-hidden",
        "-Wall",
        "-Wextra",
        f"-DTORCH_EXTENSION_NAME={MODULE}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *sanitizer_flags(),
        *shlex.split(os.environ.get("NOALIAS_CXXFLAGS", "")),
    ]


SANITIZERS = ("address", "thread", "undefined")


def sanitizers() -> list[str]:
    """``NOALIAS_SANITIZE=address,undefined``: what the core is instrumented with, for its tests.

    Such a core loads only into a process that has the sanitizer's runtime from its start on;
    ``tools/sanitize.py`` starts one.

    Raises:
        NativeUnavailable: it names something else, or two that exclude each other.
    """
    named = sorted({name for name in os.environ.get("NOALIAS_SANITIZE", "").split(",") if name})
    wrong = [name for name in named if name not in SANITIZERS]
    if wrong or {"address", "thread"} <= set(named):
        reason = f"{wrong[0]!r} is none" if wrong else "address and thread exclude each other"
        raise NativeUnavailable(
            f"NOALIAS_SANITIZE names the core's sanitizers, and {reason}",
            fix=f"unset it, or set it to some of {', '.join(SANITIZERS)}, with commas between",
        )
    return named


def sanitizer_flags() -> list[str]:
    """The flags of :func:`sanitizers`, for the compiler and the linker."""
    named = sanitizers()
    if not named:
        return []
    return [
        f"-fsanitize={','.join(named)}",
        "-fno-sanitize-recover=undefined",
        # It asks for the type of every object, and PyTorch's wheels hide that of most classes.
        "-fno-sanitize=vptr",
        "-fno-omit-frame-pointer",
        "-g1",
        # Half the time to compile, and still every check.
        "-O1",
    ]


def strict() -> bool:
    """``NOALIAS_WERROR=1``: warnings fail the build, as in development and CI.

    A user's compiler may be newer than ours, and a warning it invents must not take the core away.
    """
    return os.environ.get("NOALIAS_WERROR", "") not in ("", "0")


def link_flags() -> list[str]:
    """The flags the library is linked with; a part of its cache key."""
    if sys.platform == "darwin":
        platform = ["-undefined", "dynamic_lookup"]
    else:
        # A symbol this PyTorch lacks must fail the import, not the first call.
        platform = ["-Wl,-z,now"]
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    extra = shlex.split(os.environ.get("NOALIAS_LDFLAGS", ""))
    return ["-shared", *libraries, *platform, *sanitizer_flags(), *extra]


def include_paths() -> list[Path]:
    """Where the headers of PyTorch and Python lie.

    Raises:
        NativeUnavailable: one of them is missing.
    """
    # Imported only to build: it imports setuptools, and a cached core loads without it.
    try:
        from torch.utils import cpp_extension
    except ImportError as error:
        raise NativeUnavailable(
            f"torch.utils.cpp_extension cannot be imported: {error}",
            fix=f"{sys.executable} -m pip install setuptools",
        ) from error
    pytorch = [Path(path) for path in cpp_extension.include_paths()]
    if not any((path / "torch" / "csrc" / "autograd" / "function.h").is_file() for path in pytorch):
        raise NativeUnavailable(
            f"PyTorch's headers are not in {pytorch[0]}",
            fix="reinstall torch from its wheel, which carries them",
        )
    python = Path(sysconfig.get_path("include"))
    if not (python / "Python.h").is_file():
        raise NativeUnavailable(
            f"Python's headers are not in {python} (no Python.h)",
            fix=f"apt install python{sys.version_info[0]}.{sys.version_info[1]}-dev",
        )
    return [*pytorch, python]


def library_paths() -> list[Path]:
    """Where PyTorch's libraries lie."""
    from torch.utils import cpp_extension

    return [Path(path) for path in cpp_extension.library_paths()]


def sources() -> dict[str, bytes]:
    """The core's sources and headers as they are now, by path below ``csrc``, sorted.

    Raises:
        NativeUnavailable: the package was installed without them.
    """
    suffixes = {".cpp", ".h", ".hpp"}
    paths = sorted(path for path in SOURCES.rglob("*.*") if path.suffix in suffixes)
    if not any(path.suffix == ".cpp" for path in paths):
        raise NativeUnavailable(
            f"the core's sources are not in {SOURCES}",
            fix=f"{sys.executable} -m pip install --force-reinstall --no-deps noalias",
        )
    return {path.relative_to(SOURCES).as_posix(): path.read_bytes() for path in paths}


def jobs() -> int:
    """Compilers to run at once: ``$MAX_JOBS``, else the CPUs this process may use."""
    named = os.environ.get("MAX_JOBS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
