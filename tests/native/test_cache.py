"""What a core is found by, and what is done about a damaged one."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.utils

from noalias.native import build, cache

pytestmark = pytest.mark.usefixtures("cache_root", "sources")


@pytest.mark.parametrize("change", ["source", "header", "flags", "torch", "python"])
def test_a_core_built_for_anything_else_is_not_found(
    change: str, sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.ensure()
    assert build.find() is not None

    if change == "source":
        (sources / "stub.cpp").write_text((sources / "stub.cpp").read_text() + "\n")
    elif change == "header":
        (sources / "new.h").touch()
    elif change == "flags":
        monkeypatch.setenv("NOALIAS_CXXFLAGS", "-DOTHER")
    elif change == "torch":
        monkeypatch.setattr(torch.version, "git_version", "another commit")
    else:
        monkeypatch.setattr(sysconfig, "get_config_var", lambda name: "cpython-399-other")

    assert build.find() is None


def test_a_core_built_by_another_compiler_is_used_only_where_there_is_none(
    counting_compiler: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    entry = build.ensure()

    monkeypatch.delenv("CXX")
    assert build.find() is None

    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.find() == entry


def truncate(entry: cache.Entry) -> None:
    with entry.library.open("r+b") as file:
        file.truncate(entry.size // 2)


def alter(entry: cache.Entry) -> None:
    content = bytearray(entry.library.read_bytes())
    content[len(content) // 2] ^= 0xFF
    entry.library.write_bytes(content)


def lose_library(entry: cache.Entry) -> None:
    entry.library.unlink()


def lose_checksum(entry: cache.Entry) -> None:
    (entry.folder / "entry.json").unlink()


def garble_checksum(entry: cache.Entry) -> None:
    (entry.folder / "entry.json").write_bytes(b'{"sha256": "\xff')


def list_instead_of_checksum(entry: cache.Entry) -> None:
    (entry.folder / "entry.json").write_text("[]")


@pytest.mark.parametrize(
    "damage",
    [truncate, alter, lose_library, lose_checksum, garble_checksum, list_instead_of_checksum],
)
def test_damaged_entry_is_reported_and_built_again(
    damage: Callable[[cache.Entry], None],
    counting_compiler: Callable[[], int],
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(build.ensure())

    entry = build.ensure()

    assert counting_compiler() == 2
    assert cache.read(entry.folder) == entry
    assert "is damaged and not used" in capsys.readouterr().err


def test_clean_deletes_built_cores_and_nothing_else(cache_root: Path) -> None:
    entry = build.ensure()
    (cache_root / "somebody's folder").mkdir()
    (cache_root / "notes.txt").touch()

    assert cache.clean(cache_root) >= entry.size
    assert {path.name for path in cache_root.iterdir()} == {"somebody's folder", "notes.txt"}
