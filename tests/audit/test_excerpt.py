from __future__ import annotations

from pathlib import Path

import pytest

from noalias.audit import excerpt


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text("a = 1\n\n    b = 2\nc = 3\r\nd = 4\n" + "x" * 5000 + "\n")
    return str(path)


def test_the_lines_around_are_taken_without_their_ends(file: str) -> None:
    found = excerpt.excerpt(file, 3, around=1)
    assert found is not None
    assert (found.first_line, found.lines) == (2, ("", "    b = 2", "c = 3"))


def test_the_excerpt_stops_at_both_ends_of_the_file(file: str) -> None:
    found = excerpt.excerpt(file, 1, around=2)
    assert found is not None
    assert (found.first_line, len(found.lines)) == (1, 3)
    last = excerpt.excerpt(file, 6, around=2)
    assert last is not None
    assert (last.first_line, len(last.lines)) == (4, 3)


def test_a_line_past_the_end_has_no_excerpt(file: str) -> None:
    assert excerpt.excerpt(file, 9, around=2) is None


def test_a_file_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert excerpt.excerpt(str(tmp_path / "gone.py"), 1) is None
    assert excerpt.excerpt("<string>", 1) is None
    assert excerpt.source_line("<string>", 1) == ""


def test_a_very_long_line_is_cut(file: str) -> None:
    assert len(excerpt.source_line(file, 6)) == excerpt.LONGEST_LINE


def test_a_source_line_loses_its_indentation(file: str) -> None:
    assert excerpt.source_line(file, 3) == "b = 2"
