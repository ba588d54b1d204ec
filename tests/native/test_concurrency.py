"""Several processes want the core at once; some of them die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noalias.native import NativeUnavailable, build, lock
from tests.native.support import Spawn, result, slow_compiler, wait_for

pytestmark = pytest.mark.usefixtures("cache_root")

BUILD = """\
    from noalias.native import build
    print(build.ensure().library)
"""


def test_eight_processes_at_once_build_once(
    spawn: Spawn, counting_compiler: Callable[[], int]
) -> None:
    processes = [spawn(BUILD) for _ in range(8)]

    libraries = {result(process) for process in processes}

    assert len(libraries) == 1
    assert counting_compiler() == 1


def test_processes_that_wait_for_a_failing_build_fail_without_repeating_it(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    compiler = slow_compiler(tmp_path, then=f"echo x >> {count}; echo nope >&2; exit 1")
    monkeypatch.setenv("CXX", str(compiler))
    processes = [spawn(BUILD) for _ in range(3)]
    # Its first line says that a process compiles, or that it waits.
    first = [process.stderr.readline() for process in processes if process.stderr]
    assert sum("waiting for process" in line for line in first) == 2
    (tmp_path / "go").touch()

    errors = [process.stderr.read() for process in processes if process.stderr]

    assert all("NativeUnavailable" in text for text in errors)
    assert sum("the process that compiled it failed" in text for text in errors) == 2
    assert count.read_text() == "x\n"


def test_build_that_was_killed_is_taken_over_at_once(
    spawn: Spawn, tmp_path: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = slow_compiler(tmp_path, then='exec g++ "$@"')
    monkeypatch.setenv("CXX", str(compiler))
    victim = spawn(BUILD)
    wait_for(tmp_path / "started")
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    assert list(cache_root.rglob("tmp-*")) != []
    # The compiler it started lives on, as after a real kill; it must not matter.
    (tmp_path / "go").touch()

    entry = build.ensure()

    assert entry.library.is_file()
    assert list(cache_root.rglob("tmp-*")) == []


def test_interrupted_build_ends_its_compiler_and_leaves_no_folder(
    spawn: Spawn, tmp_path: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = slow_compiler(tmp_path, then=f"touch {tmp_path}/survived; exit 1")
    monkeypatch.setenv("CXX", str(compiler))
    process = spawn(BUILD)
    wait_for(tmp_path / "started")

    # To the process alone, as an interrupted notebook cell does it.
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    (tmp_path / "go").touch()

    assert error.rstrip().endswith("KeyboardInterrupt")
    assert list(cache_root.rglob("tmp-*")) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not (tmp_path / "survived").exists()


def test_waiting_is_said_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.lock"

    with lock.exclusive(path):
        with (
            pytest.raises(NativeUnavailable, match=f"process {os.getpid()} has held"),
            lock.exclusive(path, patience=0.2),
        ):
            pass
        assert f"waiting for process {os.getpid()}" in capsys.readouterr().err

    with lock.exclusive(path) as (held, waited):
        assert held
        assert not waited


def test_lock_is_not_kept_alive_by_a_forked_child(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with lock.exclusive(path):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        with lock.exclusive(path, patience=0.0) as (held, waited):
            assert held
            assert not waited
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
