"""Other people's names and words in a command's complaints do nothing to the terminal."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.cli import FAILURE, main
from noalias.complaint import complain, printable

ESCAPE = "\x1b[2Jn\x1b]0;title\x07\x9b1m"


def harmless(text: str) -> bool:
    """Whether all of it but the ends of lines shows itself, and nothing is a control character."""
    hidden = {"Cc", "Cf", "Cs"}
    return all(
        unicodedata.category(character) not in hidden for character in text if character != "\n"
    )


def test_lines_stay_and_escapes_are_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    complain("one\x1b[2J\ntwo")

    assert capsys.readouterr().err == "one\\x1b[2J\ntwo\n"


@given(st.text())
def test_nothing_unprintable_is_left(text: str) -> None:
    shown = printable(text)

    assert harmless(shown)
    assert shown.count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "words",
    [
        ["audit", f"{ESCAPE}.py"],
        ["audit", "--baseline", f"{ESCAPE}.json", "x.py"],
        ["audit", "--format", ESCAPE, "x.py"],
        ["audit", "--select", ESCAPE, "x.py"],
        ["audit", f"--{ESCAPE}"],
        ["bench", "--preset", ESCAPE],
        ["doctor", ESCAPE],
        ["explain", f"{ESCAPE}.log"],
        ["explain", "."],
        ["run", f"{ESCAPE}.py"],
        ["run", "--cures", ESCAPE, "x.py"],
        ["sweep", "--compare", f"{ESCAPE}.json"],
        [ESCAPE],
    ],
    ids=lambda words: ascii(words[0]) if len(words) == 1 else " ".join(words[:2]).split("\x1b")[0],
)
def test_an_argument_with_terminal_escapes_is_named_without_them(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / ESCAPE
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "x.py").touch()

    assert main(words) == FAILURE
    captured = capsys.readouterr()
    assert captured.err
    assert harmless(captured.out + captured.err)


@pytest.mark.parametrize("content", [b'{"\x1b[2J": ', b"\xff\x1b[2J", b'["\\u001b[2J"]'])
def test_a_baseline_with_terminal_escapes_is_refused_without_them(
    content: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{ESCAPE}.json").write_bytes(content)
    Path("x.py").touch()

    assert main(["audit", "--baseline", f"{ESCAPE}.json", "x.py"]) == FAILURE
    captured = capsys.readouterr()
    assert harmless(captured.out + captured.err)
