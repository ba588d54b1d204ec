from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import audit_samples as samples
import pytest

from noalias.audit.report import render
from noalias.audit.report.output import emit


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    emit(samples.full(), "html", path)
    assert path.read_text(encoding="utf-8") == render(samples.full(), "html")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_gets_the_permissions_of_any_other(tmp_path: Path) -> None:
    emit(samples.full(), "json", tmp_path / "report.json")
    (tmp_path / "other").write_text("")
    assert (tmp_path / "report.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_that_is_not_there_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        emit(samples.full(), "json", tmp_path / "nowhere" / "report.json")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_file_s_place_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "report.json").mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        emit(samples.full(), "json", tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == [tmp_path / "report.json"]


def test_text_goes_to_standard_output_without_colours(capsys: pytest.CaptureFixture[str]) -> None:
    emit(samples.full(), "text")
    out = capsys.readouterr().out
    assert out.startswith("noalias audit  train.py")
    assert "\x1b" not in out
    assert not [line for line in out.splitlines() if line != line.rstrip()]


def test_json_on_standard_output_can_be_piped(capsys: pytest.CaptureFixture[str]) -> None:
    emit(samples.full(), "json")
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1


@pytest.mark.parametrize("format_", ["text", "html"])
def test_an_output_that_is_ascii_only_gets_what_it_can_take(
    monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    emit(samples.full(), format_)
    assert b"in-place on a hidden base" in raw.getvalue()
