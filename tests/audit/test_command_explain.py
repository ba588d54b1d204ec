from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noalias.audit import command_explain

LEAF = "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation."


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command_explain.configure(parser)
    return command_explain.run(parser.parse_args(list(words)))


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def test_a_saved_traceback_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "crash.log"
    path.write_text(f'  File "/home/ada/train.py", line 3, in <module>\n    w.add_(1)\n{LEAF}\n')
    assert run(str(path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "In-place on a leaf that requires grad" in shown
    assert "modified at: /home/ada/train.py:3 w.add_(1)" in shown
    assert "→ to set or initialise values: write under torch.no_grad()" in shown


def test_the_text_may_be_given_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*LEAF.split()) == 0
    assert run(LEAF) == 0


@pytest.mark.parametrize("words", [(), ("-",)])
def test_the_text_may_be_piped_in(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    pipe(monkeypatch, LEAF.encode() + b"\xff\xfe")
    assert run(*words) == 0


def test_a_code_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("NA201") == 0
    assert "slice updates in a loop" in capsys.readouterr().out


def test_a_code_that_there_is_not_is_answered_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("NA999") == 1
    assert "no code is called NA999; the codes are NA101, NA102" in capsys.readouterr().err


def test_json_has_no_explanation_of_a_code_that_there_is_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--format", "json", "NA999") == 1
    assert json.loads(capsys.readouterr().out)["explanations"] == []


def test_what_is_not_known_is_said_so_and_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ZeroDivisionError: division by zero") == 1
    assert "no message that noalias knows" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gone.log", "logs/gone", "gone.txt"])
def test_a_file_that_is_not_there_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name) == 2
    assert f"there is no file {name}" in capsys.readouterr().err


def test_a_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(tmp_path)) == 2
    assert "is a folder" in capsys.readouterr().err


def test_an_empty_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe(monkeypatch, b" \n")
    assert run() == 2
    assert "the text is empty" in capsys.readouterr().err


def test_json_has_every_explanation(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--format", "json", LEAF) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["explanations"][0]["code"] == "NA302"


def test_terminal_escapes_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f'File "\x1b]0;owned\x07\u202eevil.py", line 3, in f\n{LEAF}\n') == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "\u202e" not in out


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(["text", "json"]))
def test_any_bytes_are_explained_or_not(
    monkeypatch: pytest.MonkeyPatch, data: bytes, format_: str
) -> None:
    pipe(monkeypatch, data + LEAF.encode())
    assert run("--format", format_) == 0
    pipe(monkeypatch, data)
    assert run("--format", format_) in (0, 1, 2)


def test_explaining_does_not_import_pytorch() -> None:
    program = (
        "import sys\nfrom noalias.audit import messages, command_explain\n"
        f"assert messages.explain({LEAF!r})\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
