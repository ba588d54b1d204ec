"""The ``noalias`` command: finds the module of a subcommand and hands over to it."""

from __future__ import annotations

import argparse
import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import noalias
from noalias.complaint import complain, printable

FINE = 0
FINDINGS = 1
FAILURE = 2
_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it

# Command -> its module, imported only when the command (or the list of commands) is asked for.
COMMANDS = {
    "run": "noalias.ownership.command_run",
    "audit": "noalias.audit.command_audit",
    "bench": "noalias.bench.command_bench",
    "sweep": "noalias.sweep.command_sweep",
    "explain": "noalias.audit.command_explain",
    "build": "noalias.native.command_build",
    "doctor": "noalias.native.command_doctor",
}


class Command(Protocol):
    """What a command's module offers."""

    SUMMARY: str

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """Names the nearest option where one is unknown."""

    def error(self, message: str) -> NoReturn:
        head, _, words = message.partition("unrecognized arguments: ")
        if words and not head:
            known = re.findall(r"--[a-z][a-z-]*", self.format_usage())
            near = difflib.get_close_matches(words.split("=")[0].split()[0], known, n=1)
            message += f"; did you mean {near[0]!r}?" if near else ""
        super().error(printable(message))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line ``argv`` (``sys.argv[1:]`` by default).

    Returns:
        The exit code: 0 fine, 1 findings or a negative result, 2 usage or failure, 130 interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(words)
    except KeyboardInterrupt:
        print("noalias: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has all it wanted. Python must not flush to it again at exit.
        sys.stdout = None
        return FINE
    except noalias.NativeUnavailable as error:
        complain(f"noalias: {error}")
        return FAILURE
    except Exception:
        complain(f"{traceback.format_exc()}noalias: this is a bug in noalias; please report it")
        return FAILURE


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        if len(words) > 1 and words[0] == "help":
            return _dispatch([words[1], "--help"])
        print(_overview())
        return FINE if words else FAILURE
    if words[0] in ("-V", "--version"):
        print(f"noalias {noalias.__version__}")
        return FINE
    name, *rest = words
    if name not in COMMANDS:
        return _unknown(name)
    command = _load(name)
    parser = _Parser(
        prog=f"noalias {name}",
        description=command.SUMMARY,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    try:
        args = parser.parse_args(rest)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else FAILURE
    return command.run(args)


def _load(name: str) -> Command:
    return cast("Command", importlib.import_module(COMMANDS[name]))


def _overview() -> str:
    width = max(len(name) for name in [*COMMANDS, "--version"]) + 2
    # A summary's first line; the rest of it belongs to the command's own help.
    summaries = {name: _load(name).SUMMARY.partition("\n")[0] for name in COMMANDS}
    listed = "\n".join(f"  {name:<{width}}{text}" for name, text in summaries.items())
    return (
        "usage: noalias COMMAND [options]\n\n"
        "Ownership for PyTorch's autograd.\n\n"
        f"commands:\n{listed}\n\n"
        "options:\n"
        f"  {'--help':<{width}}show this; after a command, its options\n"
        f"  {'--version':<{width}}show the version\n\n"
        "exit codes: 0 fine, 1 findings or a negative result, 2 usage or failure"
    )


def _unknown(name: str) -> int:
    is_option = name.startswith("-")
    known = ("--help", "--version") if is_option else COMMANDS
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    kind = "option" if is_option else "command"
    hint = f"; did you mean {near[0]!r}?" if near else f"; commands: {', '.join(COMMANDS)}"
    print(f"noalias: unknown {kind} {name!r}{hint}", file=sys.stderr)
    return FAILURE
