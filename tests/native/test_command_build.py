"""``noalias build`` compiles ahead of time, into the cache or into a folder for others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from noalias import cli
from noalias.native import build

pytestmark = pytest.mark.usefixtures("cache_root", "sources")


def test_build_prints_path_time_and_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["build"]) == 0

    first, path = capsys.readouterr().out.splitlines()
    assert " compiled in " in first
    assert first.endswith(" MiB)")
    assert Path(path).name == "noalias_core.so"
    assert build.find() is not None


def test_second_build_says_it_is_already_there(
    capsys: pytest.CaptureFixture[str], counting_compiler: Callable[[], int]
) -> None:
    cli.main(["build"])
    cli.main(["build"])
    assert "already there" in capsys.readouterr().out
    assert counting_compiler() == 1

    cli.main(["build", "--force"])
    assert counting_compiler() == 2


def test_json_holds_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["build", "--format", "json"])
    first = json.loads(capsys.readouterr().out)
    cli.main(["build", "--format", "json"])
    second = json.loads(capsys.readouterr().out)

    assert Path(first["path"]).stat().st_size == first["bytes"]
    assert first["built_now"] is True
    assert second == first | {"built_now": False}


def test_folder_for_others_is_one_that_prebuilt_can_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_root: Path
) -> None:
    assert cli.main(["build", "-o", str(tmp_path / "image")]) == 0
    monkeypatch.setenv("NOALIAS_PREBUILT", str(tmp_path / "image"))

    entry = build.find()

    assert entry is not None
    assert entry.library.is_relative_to(tmp_path / "image")
    assert not cache_root.exists()


def test_clean_empties_the_cache(capsys: pytest.CaptureFixture[str], cache_root: Path) -> None:
    cli.main(["build"])

    assert cli.main(["build", "--clean"]) == 0

    assert "deleted" in capsys.readouterr().out
    assert list(cache_root.iterdir()) == []


def test_failure_is_a_message_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], sources: Path
) -> None:
    (sources / "stub.cpp").write_text("#error broken on purpose\n")

    assert cli.main(["build"]) == 2

    error = capsys.readouterr().err
    assert "noalias: the noalias core is not available: the compiler failed" in error
    assert "broken on purpose" in error
    assert "fix: " in error
    assert "log: " in error
    assert "Traceback" not in error
