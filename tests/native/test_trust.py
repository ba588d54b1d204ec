"""Nothing that somebody else could have written is loaded; what root made for all is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from noalias.native import NativeUnavailable, build, cache, toolchain
from tests.native.support import modes

pytestmark = pytest.mark.usefixtures("cache_root", "sources")

AsNobody = Callable[[], AbstractContextManager[None]]


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702], ids=oct)
def test_cache_folder_that_others_can_write_is_refused(cache_root: Path, mode: int) -> None:
    build.ensure()
    cache_root.chmod(mode)

    with pytest.raises(NativeUnavailable, match="is writable by others") as caught:
        build.ensure()

    assert "chmod" in caught.value.fix


def test_cache_below_a_folder_that_everybody_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("NOALIAS_CACHE", str(shared / "cache"))
    build.ensure()
    shared.chmod(0o777)

    with pytest.raises(NativeUnavailable, match="which holds the cache folder"):
        build.ensure()

    shared.chmod(0o1777)
    assert build.find() is not None


@pytest.mark.parametrize("name", ["noalias_core.so", "entry.json", "."])
def test_entry_that_others_can_write_is_refused(name: str) -> None:
    (build.ensure().folder / name).chmod(0o766)

    with pytest.raises(NativeUnavailable, match="is writable by others"):
        build.ensure()


def test_library_that_is_a_symbolic_link_is_refused(tmp_path: Path) -> None:
    entry = build.ensure()
    elsewhere = tmp_path / "elsewhere.so"
    entry.library.rename(elsewhere)
    entry.library.symlink_to(elsewhere)

    with pytest.raises(NativeUnavailable, match="is a symbolic link"):
        build.ensure()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("part", ["root", "entry", "library"])
def test_cache_of_another_user_is_refused(cache_root: Path, part: str) -> None:
    entry = build.ensure()
    path = {"root": cache_root, "entry": entry.folder, "library": entry.library}[part]
    os.chown(path, 65534, 65534)

    with pytest.raises(
        NativeUnavailable, match=r"belongs to another user \(uid 65534, you are 0\)"
    ):
        build.ensure()


def test_cache_in_roots_hands_is_read_by_a_user_who_cannot_write_it(
    as_nobody: AsNobody, open_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Path
) -> None:
    monkeypatch.setattr(toolchain, "SOURCES", sources.rename(open_path / "csrc"))
    monkeypatch.setenv("NOALIAS_CACHE", str(open_path / "cache"))
    entry, _ = build.into(cache.root(), shared=True)

    with as_nobody():
        assert not os.access(cache.root(), os.W_OK, effective_ids=True)
        assert build.ensure() == entry


def test_cache_that_cannot_be_written_is_named(
    as_nobody: AsNobody, open_path: Path, monkeypatch: pytest.MonkeyPatch, sources: Path
) -> None:
    monkeypatch.setattr(toolchain, "SOURCES", sources.rename(open_path / "csrc"))
    monkeypatch.setenv("NOALIAS_CACHE", str(open_path / "cache"))

    with as_nobody(), pytest.raises(NativeUnavailable, match="cannot be written") as caught:
        build.ensure()

    assert "NOALIAS_PREBUILT" in caught.value.fix


def test_prebuilt_core_is_readable_by_all_and_used_without_a_cache(
    cache_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, built = build.into(tmp_path / "image", shared=True)
    assert built
    assert modes(entry.folder) == {
        entry.folder.name: 0o755,
        "noalias_core.so": 0o644,
        "entry.json": 0o644,
        "build.log": 0o644,
    }

    monkeypatch.setenv(
        "NOALIAS_PREBUILT", f"{tmp_path / 'missing'}{os.pathsep}{tmp_path / 'image'}"
    )
    monkeypatch.setenv("CXX", "/another/compiler")

    assert build.ensure() == entry
    assert not cache_root.exists()


def test_prebuilt_folder_that_everybody_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.into(tmp_path / "image", shared=True)
    (tmp_path / "image").chmod(0o777)
    monkeypatch.setenv("NOALIAS_PREBUILT", str(tmp_path / "image"))

    with pytest.raises(NativeUnavailable, match="is writable by others"):
        build.ensure()
