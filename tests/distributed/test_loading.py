"""The core on many ranks: built once, beforehand; no rank compiles, none writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noalias.bench.ranks import on_ranks
from noalias.native.core import Core
from tests.distributed import loading_checks as checks
from tests.distributed.support import listing


def never_run(folder: Path) -> Path:
    """A compiler that leaves a trace."""
    compiler = folder / "never-run"
    compiler.write_text(f"#!/bin/sh\necho ran >> {folder / 'trace'}\nexit 1\n", encoding="utf-8")
    compiler.chmod(0o700)
    return compiler


def test_ranks_load_the_prebuilt_core_from_a_read_only_place(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Path(core.__file__).parent
    place = tmp_path / "image"
    shutil.copytree(built, place / built.parent.name / built.name)
    before = listing(place)
    for path in [*place.rglob("*"), place]:
        path.chmod(path.stat().st_mode & 0o555)
    monkeypatch.setenv("NOALIAS_PREBUILT", str(place))
    monkeypatch.setenv("NOALIAS_CACHE", "/nonexistent/noalias")
    monkeypatch.setenv("CXX", str(never_run(tmp_path)))
    try:
        answers = on_ranks(checks.load_and_use)
    finally:
        for path in [place, *place.rglob("*")]:
            path.chmod(path.stat().st_mode | 0o200)
    assert {Path(str(answer["library"])).is_relative_to(place) for answer in answers} == {True}
    assert [answer["sum"] for answer in answers] == [120.0] * 4
    assert listing(place) == before
    assert not (tmp_path / "trace").exists()


def test_ranks_share_the_core_in_one_home(
    core: Core, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = Path(core.__file__).parent
    home = tmp_path / "home"
    shutil.copytree(built, home / built.parent.name / built.name)
    home.chmod(0o700)
    before = listing(home)
    monkeypatch.setenv("NOALIAS_CACHE", str(home))
    answers = on_ranks(checks.load_and_use)
    assert len({str(answer["library"]) for answer in answers}) == 1
    assert Path(str(answers[0]["library"])).is_relative_to(home)
    assert listing(home) == before
