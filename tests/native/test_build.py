"""What a build leaves, what can fail in it, and what it says."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.utils

from noalias.native import NativeUnavailable, build, cache, lock, toolchain
from tests.native.support import modes, slow_compiler

pytestmark = pytest.mark.usefixtures("cache_root", "sources")


def test_core_is_compiled_once_and_found_afterwards(counting_compiler: Callable[[], int]) -> None:
    first = build.ensure()
    again = build.ensure()

    assert counting_compiler() == 1
    assert again == first
    assert first.library.stat().st_size == first.size


def test_force_compiles_again(counting_compiler: Callable[[], int]) -> None:
    build.ensure()
    build.ensure(force=True)

    assert counting_compiler() == 2


def test_entry_holds_the_library_its_checksum_and_its_log_and_no_build_files() -> None:
    entry = build.ensure()

    assert {path.name for path in entry.folder.iterdir()} == {
        "noalias_core.so",
        "entry.json",
        "build.log",
    }
    assert toolchain.require_compiler().version() in (entry.folder / "build.log").read_text()


def test_source_edited_during_the_build_is_not_in_the_library_of_the_old_key(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cache.key(toolchain.sources())
    (tmp_path / "go").touch()
    edit = f"echo '#error edited' >> {sources}/stub.cpp"
    monkeypatch.setenv("CXX", str(slow_compiler(tmp_path, then=f'{edit}; exec g++ "$@"')))

    entry = build.ensure()

    assert entry.folder.parent.name == before
    assert cache.key(toolchain.sources()) != before


def test_header_that_pytorch_does_not_install_is_found_in_absent(sources: Path) -> None:
    (sources / "absent" / "library").mkdir(parents=True)
    (sources / "absent" / "library" / "header.hpp").write_text("#pragma once\n")
    with (sources / "stub.cpp").open("a") as file:
        file.write("#include <library/header.hpp>\n")

    assert build.ensure().library.is_file()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777], ids=oct)
def test_cache_is_private_whatever_the_umask(cache_root: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        entry = build.ensure()
        assert build.find() == entry
    finally:
        os.umask(before)

    assert cache_root.stat().st_mode & 0o777 == 0o700
    assert modes(entry.folder) == {
        entry.folder.name: 0o700,
        "noalias_core.so": 0o600,
        "entry.json": 0o600,
        "build.log": 0o600,
    }


def test_failed_compile_names_the_error_and_the_log_and_leaves_nothing_else(
    cache_root: Path, sources: Path
) -> None:
    (sources / "stub.cpp").write_text("int broken() { return undeclared; }\n")

    with pytest.raises(NativeUnavailable, match="undeclared") as caught:
        build.ensure()

    log = caught.value.log
    assert log is not None
    assert f"{sources}/stub.cpp:1:" in log.read_text()
    assert str(log) in str(caught.value)
    assert [path for path in cache_root.rglob("*") if path.is_dir() and path != log.parent] == []


def test_repaired_sources_compile_after_a_failure(sources: Path) -> None:
    text = (sources / "stub.cpp").read_text()
    (sources / "stub.cpp").write_text("#error no\n")
    with pytest.raises(NativeUnavailable):
        build.ensure()

    (sources / "stub.cpp").write_text(text)

    assert build.ensure().library.is_file()


def test_warnings_fail_the_build_only_where_they_are_asked_to(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warning = "static int unused_function() { return 0; }\n"
    (sources / "stub.cpp").write_text((sources / "stub.cpp").read_text() + warning)

    entry = build.ensure()
    assert "unused_function" in (entry.folder / "build.log").read_text()

    monkeypatch.setenv("NOALIAS_WERROR", "1")
    with pytest.raises(NativeUnavailable, match="unused_function"):
        build.ensure()


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        ("/tmp/cc.s: fatal error: error writing: No space left on device", "free some disk"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "MAX_JOBS=1"),
        ("g++: error: unrecognized command-line option '-std=c++20'", "newer compiler"),
        ("ld: cannot find -ltorch_python: No such file", "reinstall torch"),
        ("segmentation fault", "report the log"),
    ],
)
def test_what_the_compiler_says_decides_the_fix(
    output: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "failing-g++"
    compiler.write_text(f'#!/bin/sh\necho "{output}" >&2\nexit 1\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    with pytest.raises(NativeUnavailable) as caught:
        build.ensure()

    assert fix in caught.value.fix
    assert output in str(caught.value)


def test_cache_path_below_a_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NOALIAS_CACHE", str(tmp_path / "file" / "cache"))

    with pytest.raises(NativeUnavailable, match="is no folder") as caught:
        build.ensure()

    assert "NOALIAS_CACHE" in caught.value.fix


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem with room for a few files and not for a library."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs root and the right to mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_named(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOALIAS_CACHE", str(small_disk))

    with pytest.raises(NativeUnavailable) as caught:
        build.ensure()

    assert caught.value.fix.startswith("free some")
    assert list(small_disk.rglob("noalias_core.so")) == []


@pytest.fixture
def read_only_disk(cache_root: Path) -> Iterator[Path]:
    cache_root.mkdir(mode=0o700)
    steps = (["mount", "--bind"], ["mount", "-o", "remount,ro,bind"])
    for step in steps:
        command = [*step, str(cache_root), str(cache_root)]
        if (
            os.geteuid() != 0
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            pytest.skip("needs root and the right to mount")
    yield cache_root
    subprocess.run(["umount", str(cache_root)], check=True)


def test_read_only_filesystem_is_named(read_only_disk: Path) -> None:
    with pytest.raises(NativeUnavailable, match="is on a read-only filesystem") as caught:
        build.ensure()

    assert str(read_only_disk) in caught.value.reason
    assert "NOALIAS_PREBUILT" in caught.value.fix


def test_build_says_one_line_off_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    build.ensure()

    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"noalias: compiling the core for torch {torch.__version__}\n"


def test_quiet_build_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOALIAS_QUIET", "1")

    build.ensure()

    assert capsys.readouterr() == ("", "")


def test_filesystem_without_locks_is_said_and_built_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", refuse)

    assert build.ensure().library.is_file()
    assert "without file locks" in capsys.readouterr().err
