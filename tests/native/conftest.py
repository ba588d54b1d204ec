"""A tiny core that compiles in a fraction of a second, a cache of its own, and other processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from noalias.native import toolchain
from tests.native.support import Spawn

NOBODY = 65534

STUB = """\
#include <Python.h>

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "noalias_core", nullptr, -1,
    nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_noalias_core() { return PyModule_Create(&definition); }
"""


@pytest.fixture
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder (not made yet) and a clean environment."""
    for name in ("CXX", "MAX_JOBS", "NOALIAS_PREBUILT", "NOALIAS_QUIET", "NOALIAS_WERROR"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "cache"
    monkeypatch.setenv("NOALIAS_CACHE", str(root))
    return root


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source folder with the tiny core in it, used instead of the real one."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "stub.cpp").write_text(STUB)
    monkeypatch.setattr(toolchain, "SOURCES", folder)
    return folder


@pytest.fixture
def counting_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Compile through a wrapper; the function returned says how many files were compiled."""
    real = toolchain.require_compiler().command[0]
    log = tmp_path / "compiled.txt"
    wrapper = tmp_path / "counting-g++"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *" -c "*) echo "$*" >> {log};; esac\nexec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def spawn(sources: Path) -> Iterator[Spawn]:
    """Start Python on some code, with the tiny core's sources; nothing outlives the test."""
    started: list[subprocess.Popen[str]] = []
    # A job that a shell started in the background ignores SIGINT, and so would its children.
    prelude = f"""\
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from pathlib import Path
        from noalias.native import toolchain
        toolchain.SOURCES = Path({str(sources)!r})
    """

    def start(code: str, **variables: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def as_nobody() -> Callable[[], AbstractContextManager[None]]:
    """Become another user for a while: root ignores permissions, so they are tested without it."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")

    @contextmanager
    def switch() -> Iterator[None]:
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)

    return switch


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that every user can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp(prefix="noalias-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
