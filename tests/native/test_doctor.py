"""``noalias doctor`` says what is here, what is wrong and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from noalias import cli
from noalias.native import build, doctor

# `examine` loads the core that it finds: here the real one is loaded already, or none is built.
pytestmark = pytest.mark.usefixtures("cache_root", "sources", "core")


def problems() -> list[tuple[str, str]]:
    return [(problem.what, problem.fix) for problem in doctor.examine().problems]


def test_core_that_is_not_built_yet_is_no_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0

    shown = capsys.readouterr().out
    assert torch.__version__ in shown
    assert "not built; compiled on first use" in shown
    assert "no problems found" in shown


def test_built_core_is_shown_with_its_path_time_and_compiler() -> None:
    entry = build.ensure()

    facts = doctor.examine().sections["core"]

    assert facts["state"] == "loads"
    assert facts["library"] == str(entry.library)
    assert entry.compiler in facts["built"]


def test_json_holds_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--format", "json"]) == 0

    facts = json.loads(capsys.readouterr().out)
    assert facts["problems"] == []
    assert facts["sections"]["torch"]["version"] == torch.__version__
    assert set(facts["sections"]) == {"noalias", "torch", "devices", "build", "cache", "core"}


def test_missing_compiler_is_a_problem_only_while_the_core_is_not_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(tmp_path))
        assert cli.main(["doctor"]) == 1
    shown = capsys.readouterr().out
    assert "problem: there is no C++ compiler on PATH" in shown
    assert "fix: apt install g++" in shown

    build.ensure()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert problems() == []


def test_cache_that_others_can_write_is_one_problem(cache_root: Path) -> None:
    build.ensure()
    cache_root.chmod(0o777)

    [(what, fix)] = problems()

    assert "is writable by others" in what
    assert "chmod" in fix


def test_cache_that_cannot_be_written_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("NOALIAS_CACHE", str(tmp_path / "file" / "cache"))

    [(what, fix)] = problems()

    assert "cannot be written" in what
    assert "NOALIAS_CACHE" in fix


def test_damaged_core_is_a_problem_that_a_build_repairs() -> None:
    build.ensure().library.write_bytes(b"")

    [(what, fix)] = problems()
    assert "is damaged" in what
    assert fix == "noalias build"

    assert cli.main(["build"]) == 0
    assert problems() == []


def test_prebuilt_folder_that_is_not_there_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NOALIAS_PREBUILT", str(tmp_path / "gone"))

    [(what, fix)] = problems()

    assert str(tmp_path / "gone") in what
    assert fix.startswith("noalias build -o")
