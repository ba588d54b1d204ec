"""``noalias sweep``: list the operators that return a view of a hidden base."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from noalias.complaint import complain

SUMMARY = """List the operators of the installed PyTorch that return a view of a hidden base.

  noalias sweep                      # a table
  noalias sweep --format json -o sweep.json
  noalias sweep --picture hidden.svg --compare benchmarks/sweep/*.json

Runs every operator and module of PyTorch's own test databases on the CPU, and for each hidden view
says what an in-place operator on it costs, in stock PyTorch and with the cures on."""

_USAGE = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to ``parser``."""
    parser.add_argument(
        "--samples", type=int, default=8, metavar="N", help="samples of each operator (default: 8)"
    )
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write there")
    parser.add_argument(
        "--compare",
        nargs="+",
        type=Path,
        metavar="JSON",
        help="run nothing; compare earlier sweeps, of several PyTorch versions",
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="with --compare: hidden views by version"
    )


def run(args: argparse.Namespace) -> int:
    """Sweep, or compare earlier sweeps; 0, or 2 where that cannot be done."""
    from noalias.sweep import operators, report, result

    if args.samples < 1:
        print(f"noalias sweep: --samples must be at least 1, not {args.samples}", file=sys.stderr)
        return _USAGE
    if args.picture and not args.compare:
        print("noalias sweep: --picture draws what --compare is given", file=sys.stderr)
        return _USAGE
    try:
        if args.compare:
            text = report.compare([result.read(path) for path in args.compare], args.picture)
        else:
            with report.progress() as shown:
                done = result.sweep(args.samples, shown)
            text = done.to_json() if args.format == "json" else report.table(done)
    except (operators.DatabaseUnavailable, report.PictureUnavailable, OSError, ValueError) as error:
        complain(f"noalias sweep: {error}")
        return _USAGE
    if args.output:
        args.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0
