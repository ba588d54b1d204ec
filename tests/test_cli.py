"""The ``noalias`` command: which subcommand, which exit code."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import types

import pytest

import noalias
from noalias import cli


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A command named ``probe`` whose ``run`` a test replaces."""
    module = types.ModuleType("noalias_probe")
    vars(module).update(
        SUMMARY="Probe.",
        configure=lambda parser: parser.add_argument("--answer", type=int, default=0),
        run=lambda args: args.answer,
    )
    monkeypatch.setitem(sys.modules, "noalias_probe", module)
    monkeypatch.setitem(cli.COMMANDS, "probe", "noalias_probe")
    return module  # type: ignore[return-value]


def raising(error: BaseException) -> object:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"noalias {noalias.__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_with_its_summary(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0

    lines = capsys.readouterr().out.split("commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == list(cli.COMMANDS)


def test_no_command_shows_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help_of_its_own(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    direct = capsys.readouterr().out
    assert cli.main(["help", name]) == 0

    assert direct.startswith(f"usage: noalias {name}")
    assert capsys.readouterr().out == direct


def test_unknown_command_suggests_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["docter"]) == 2
    assert "unknown command 'docter'; did you mean 'doctor'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        (["--hlep"], "--help"),
        (["audit", "--formt", "json", "train.py"], "--format"),
        (["audit", "--formt=json", "train.py"], "--format"),
        (["run", "--cure", "linear", "train.py"], "--cures"),
    ],
)
def test_unknown_option_suggests_the_nearest(
    words: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert f"did you mean {nearest!r}?" in capsys.readouterr().err


def test_command_like_no_other_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["xyzzy"]) == 2
    assert "commands: " in capsys.readouterr().err


@pytest.mark.usefixtures("command")
def test_exit_code_is_the_commands() -> None:
    assert cli.main(["probe"]) == 0
    assert cli.main(["probe", "--answer", "1"]) == 1


@pytest.mark.usefixtures("command")
def test_wrong_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["probe", "--answer", "many"]) == 2
    assert "usage: noalias probe" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (noalias.NativeUnavailable("no core", fix="do this"), 2, "fix: do this"),
        (ZeroDivisionError("a bug"), 2, "ZeroDivisionError: a bug"),
    ],
)
def test_exceptions_become_exit_codes(
    command: types.SimpleNamespace,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    says: str,
) -> None:
    command.run = raising(error)

    assert cli.main(["probe"]) == code
    assert says in capsys.readouterr().err


def test_reader_that_stops_early_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "noalias", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()

    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
