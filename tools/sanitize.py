"""Run tests on a core that AddressSanitizer and UBSan (or ThreadSanitizer) watch.

    python tools/sanitize.py address,undefined          # what `make test-asan` runs
    python tools/sanitize.py address,undefined tests/audit -k record
    python tools/sanitize.py thread                     # what `make test-tsan` runs

The core alone is instrumented; Python and PyTorch are those that are installed. The sanitizer's
runtime is loaded before them, so a wrong access to memory that they own is found as well where our
code, or a function of the C library, makes it. Leaks are not looked for here, because Python and
PyTorch keep much until the process ends: tests/ownership/test_lifetime.py counts objects instead.

Linux with g++ only. The first report ends the process, pytest included, and is the last that is
printed (with `-s`; pytest keeps the output of a test that did not end). ThreadSanitizer goes on
after one, and the exit code is 66.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from noalias.native import toolchain

ROOT = Path(__file__).resolve().parents[1]

# All that runs the core on tensors of its own making, in this process or in a child.
TESTS = ["tests/ownership", "tests/linear", "tests/programs", "tests/audit/test_record.py"]

# All that runs the core in several threads: backward on PyTorch's own, tables that threads share.
THREAD_TESTS = [
    "tests/ownership/test_threads.py",
    "tests/ownership/test_cures.py",
    "tests/ownership/test_owned_gradient.py",
    "tests/ownership/test_sibling_parts.py",
    "tests/ownership/test_sibling_views.py",
    "tests/ownership/test_slice_update.py",
    "tests/audit/test_record.py",
    "tests/programs/test_programs.py",
]

# Minutes of Inductor compiling kernels that are not the core's.
LEFT_OUT = ["tests/linear/test_compile.py"]

SUPPRESSIONS = ROOT / "tools" / "thread-suppressions.txt"

OPTIONS = {
    "address": ("ASAN_OPTIONS", "detect_leaks=0"),
    "undefined": ("UBSAN_OPTIONS", "print_stacktrace=1"),
    "thread": ("TSAN_OPTIONS", f"ignore_noninstrumented_modules=1:suppressions={SUPPRESSIONS}"),
}
RUNTIMES = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}


def main(argv: list[str] | None = None) -> int:
    """Build the core and run pytest on it; returns pytest's exit code."""
    parser = argparse.ArgumentParser(
        description="Run tests on a core that sanitizers watch.",
        epilog="All further arguments are pytest's.",
    )
    parser.add_argument("sanitizers", help="address, undefined, thread: one or some, with commas")
    args, rest = parser.parse_known_args(argv)
    names = args.sanitizers.split(",")
    unknown = [name for name in names if name not in OPTIONS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no sanitizer (there are {', '.join(OPTIONS)})")

    # Built without the runtime: the compiler need not be watched.
    watched = {**os.environ, "NOALIAS_SANITIZE": args.sanitizers}
    if "thread" in names:
        # g++ warns that it sees no fences; PyTorch's reference counts end in one.
        watched["NOALIAS_CXXFLAGS"] = f"{os.environ.get('NOALIAS_CXXFLAGS', '')} -Wno-tsan"
    build = [sys.executable, "-m", "noalias", "build"]
    built = subprocess.run(build, cwd=ROOT, env=watched, check=False)
    if built.returncode != 0:
        return built.returncode
    if not any(Path(word.partition("::")[0]).exists() for word in rest):
        tests = THREAD_TESTS if "thread" in names else TESTS
        rest = [*tests, *(f"--ignore={path}" for path in LEFT_OUT), *rest]
    # Without faulthandler: it would take the signals whose reports are the sanitizer's.
    pytest = [sys.executable, "-m", "pytest", "-p", "no:faulthandler", *rest]
    return subprocess.run(pytest, cwd=ROOT, env=watched | runtime(names), check=False).returncode


def runtime(names: list[str]) -> dict[str, str]:
    """What a process needs in its environment to load a core with these sanitizers."""
    compiler = toolchain.require_compiler()
    libraries = [RUNTIMES[name] for name in names]
    # libstdc++ too: else the runtime looks for __cxa_throw before there is one, and gives up at
    # the first throw.
    preload = ":".join(_library(compiler, name) for name in [*libraries, "libstdc++.so"])
    threads = os.environ.get("OMP_NUM_THREADS", "1")
    options = dict(OPTIONS[name] for name in names)
    return {"LD_PRELOAD": preload, "OMP_NUM_THREADS": threads, **options}


def _library(compiler: toolchain.Compiler, name: str) -> str:
    """Where the compiler's own copy of a library lies."""
    command = [*compiler.command, f"-print-file-name={name}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    path = Path(done.stdout.strip())
    if not path.is_absolute():
        raise SystemExit(f"sanitize: {compiler.command[0]} has no {name} (it comes with g++)")
    return str(path.resolve())


if __name__ == "__main__":
    sys.exit(main())
