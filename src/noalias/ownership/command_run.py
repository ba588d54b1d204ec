"""``noalias run``: switch the cures on for somebody's unchanged program."""

from __future__ import annotations

import argparse
import sys

from noalias import program
from noalias.complaint import complain
from noalias.ownership import cures

SUMMARY = """Run a program with the cures on, as python would run it.

  noalias run train.py --lr 0.1
  noalias run -m package.train --lr 0.1
  torchrun --nproc-per-node 4 -m noalias run train.py

Arguments, __main__, exit code and tracebacks are those of the program. Gradients are those of
stock PyTorch."""

_USAGE = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to ``parser``."""
    parser.add_argument(
        "--cures",
        metavar="NAMES",
        default="",
        help="switch on only these, with commas between (default: all)",
    )
    parser.add_argument(
        "--status",
        action="store_true",
        help="at the end, say on stderr what the cures have done",
    )
    program.configure(parser)


def run(args: argparse.Namespace) -> int:
    """Run the program; the exit code is the program's, 2 if there is none to run."""
    wanted = [name.strip() for name in args.cures.split(",") if name.strip()]
    try:
        target = program.from_arguments(args)
        target.check()
        cures.enable(*wanted)
    except (program.ProgramNotFound, ValueError) as error:
        complain(f"noalias run: {error}")
        return _USAGE
    code = target.run()
    if args.status:
        print(cures.status(), file=sys.stderr)
    return code
