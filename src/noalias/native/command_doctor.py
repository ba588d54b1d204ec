"""``noalias doctor``: what is here, and what is wrong."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noalias.native.doctor import Report

SUMMARY = "Show PyTorch, compiler, cache and core, and how to repair what is wrong."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "exit codes: 0 all is well, 1 something is wrong"
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    from noalias.native import doctor

    report = doctor.examine()
    if args.format == "json":
        print(json.dumps(asdict(report), indent=2))
    else:
        _show(report)
    return 1 if report.problems else 0


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.text import Text

    # Paths are there to be copied: the terminal may wrap a line, rich must not.
    console = Console(highlight=False, soft_wrap=True)
    names = [name for facts in report.sections.values() for name in facts]
    width = max(len(name) for name in names) + 2
    for title, facts in report.sections.items():
        console.print(Text(title, style="bold"))
        for name, value in facts.items():
            console.print(Text(f"  {name:<{width}}", style="dim") + Text(value))
    console.print()
    if not report.problems:
        console.print("no problems found", style="green")
    for problem in report.problems:
        console.print(Text("problem: ", style="bold red") + Text(problem.what))
        console.print(Text("    fix: ", style="bold") + Text(problem.fix))
