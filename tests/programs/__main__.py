"""``python -m tests.programs --count 20000 --seed 1 --cures all``: the long differential run."""

from __future__ import annotations

import argparse
import json
import platform
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
    parser.add_argument(
        "--threads", type=int, default=1, help="how many programs run at once with the cures on"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=1500,
        help="smaller programs to try for each mismatch; 0 writes it as it is",
    )
    parser.add_argument("--result", type=Path, help="a JSON file that this run is added to")
    parser.add_argument("--verbose", action="store_true", help="all statistics")
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.monotonic()

    def progress(statistics: Statistics, index: int) -> None:
        bad = _bad(statistics)
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
        options.threads,
        options.attempts,
    )
    statistics, mismatches = campaign.run()
    print(file=sys.stderr)
    print(f"torch {torch.__version__}, cures {options.cures}")
    print(f"seed {options.seed}, first {options.first}")
    print(summary(statistics, options.verbose))
    bad = _bad(statistics)
    if options.result is not None:
        seconds = time.monotonic() - start
        add_result(options.result, result(campaign, statistics, seconds))
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


# PyTorch itself crashes on what the generator tries, or on the program: nothing to compare with.
_NO_REFERENCE = (
    "stock crashes in draft",
    "stock crashes in stock",
    "stock crashes in reference",
)


def _bad(statistics: Statistics) -> int:
    """Programs that differ, crash, or could not be judged."""
    good = "equal", "unaliased", "rounding", "signed_zero", "limit", *_NO_REFERENCE
    return sum(n for kind, n in statistics.verdicts.items() if kind not in good)


def result(campaign: Campaign, statistics: Statistics, seconds: float) -> dict[str, object]:
    """What a run found, with what is needed to run it again."""
    options = {"count": campaign.count, "seed": campaign.seed, "threads": campaign.threads}
    options |= {"first": campaign.first} if campaign.first else {}
    command = "python -m tests.programs " + " ".join(f"--{k} {v}" for k, v in options.items())
    return {
        "command": f"{command} --cures {campaign.cures}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "seed": campaign.seed,
        "programs": statistics.programs,
        "mismatches": _bad(statistics),
        "verdicts": dict(statistics.verdicts.most_common()),
        "unaliased_because_of": dict(statistics.unaliased.most_common()),
        "programs_that_raise_on_stock": statistics.raising,
        "programs_by_dtype_of_leaves": dict(statistics.dtypes.most_common()),
        "programs_by_cure": dict(statistics.cured.most_common()),
        "statements": dict(statistics.statements.most_common()),
        "seconds": round(seconds),
    }


def add_result(path: Path, found: dict[str, object]) -> None:
    """Adds a run to a list of runs; one of the same command is replaced."""
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    runs = [run for run in runs if run["command"] != found["command"]]
    path.write_text(json.dumps([*runs, found], indent=1) + "\n", encoding="utf-8")


def _counts(counter: dict[str, int]) -> str:
    return (
        ", ".join(f"{name} {n}" for name, n in sorted(counter.items(), key=lambda item: -item[1]))
        or "none"
    )


if __name__ == "__main__":
    sys.exit(main())
