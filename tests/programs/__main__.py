"""``python -m tests.programs --count 20000 --seed 1 --cures all``: the long differential run."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from .campaign import Campaign, Statistics


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--count", type=int, default=20000, help="programs to run")
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--seed", type=int, default=1, help="seed of the campaign")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument(
        "--cures", default="all", help="all, none, hidden_base,slice_update,..., or broken:NAME"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("mismatches"), help="folder for shrunk programs"
    )
    parser.add_argument(
        "--reports", type=int, default=40, help="how many mismatches to shrink and write"
    )
    parser.add_argument("--verbose", action="store_true", help="all statistics")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()

    def progress(statistics: Statistics, index: int) -> None:
        bad = sum(
            n for kind, n in statistics.verdicts.items() if kind.startswith(("mismatch", "crash"))
        )
        rate = statistics.programs / (time.monotonic() - start)
        print(
            f"\r{statistics.programs} programs, {bad} mismatches, {rate:.0f}/s",
            end="",
            file=sys.stderr,
        )

    campaign = Campaign(
        options.seed,
        options.count,
        options.cures,
        options.out,
        options.first,
        options.seconds,
        options.reports,
        progress,
    )
    statistics, mismatches = campaign.run()
    print(file=sys.stderr)
    print(f"torch {torch.__version__}, cures {options.cures}")
    print(f"seed {options.seed}, first {options.first}")
    print(summary(statistics, options.verbose))
    bad = sum(
        n for kind, n in statistics.verdicts.items() if kind.startswith(("mismatch", "crash"))
    )
    if mismatches:
        print(f"{len(mismatches)} shrunk programs in {options.out}")
    return 1 if bad else 0


def summary(statistics: Statistics, verbose: bool) -> str:
    """The statistics as text."""
    lines = [
        f"programs {statistics.programs}, of which {statistics.raising} raise on stock",
        "verdicts " + _counts(statistics.verdicts),
        "unaliased because of " + _counts(statistics.unaliased),
        "first differences " + _counts(statistics.differences),
        "programs in which a counter of the core moved " + _counts(statistics.cured),
        "counters " + _counts(statistics.counters),
    ]
    if verbose:
        lines += [
            "statements " + _counts(statistics.statements),
            "steps " + _counts(statistics.steps),
            "errors on stock\n  "
            + "\n  ".join(f"{n} {text}" for text, n in statistics.errors.most_common(40)),
        ]
    return "\n".join(lines)


def _counts(counter: dict[str, int]) -> str:
    return (
        ", ".join(f"{name} {n}" for name, n in sorted(counter.items(), key=lambda item: -item[1]))
        or "none"
    )


if __name__ == "__main__":
    sys.exit(main())
