"""Fail where a single call became more than 10 % slower than at the merge base.

    python benchmarks/check.py [--base REF] [--tolerance 0.10] [--pairs 3]

The sources of the merge base are checked out into a temporary worktree, the core of each is built,
and `noalias.bench.overhead` of *this* tree runs on both in turn (base, here, base, here, ...), so
that a busy machine slows both. Each call is compared by the minimum over all runs. What looks
slower is measured again, twice at most, before it counts: a minimum can only fall.

Exit codes: 0 nothing became slower, 1 something did, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Upstream's main branch where there is one, else the local one.
MAINS = ("origin/main", "main")

Seconds = dict[str, float]


class NotMeasured(Exception):
    """Why there is nothing to compare; the message names the fix."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Fail where a single call became slower than at the merge base."
    )
    parser.add_argument("--base", metavar="REF", help="compare with this commit instead")
    parser.add_argument("--tolerance", type=float, default=0.10, metavar="SHARE")
    parser.add_argument("--pairs", type=int, default=3, metavar="N", help="runs of each, in turn")
    args = parser.parse_args(argv)
    if args.pairs < 1 or args.tolerance <= 0:
        parser.error("--pairs must be 1 or more and --tolerance more than 0")
    try:
        base = commit(args.base) if args.base else merge_base()
        with sources_of(base) as tree:
            return compare(tree, base, args.pairs, args.tolerance)
    except NotMeasured as reason:
        print(f"bench-check: {reason}", file=sys.stderr)
        return 2


def compare(base_tree: Path, base: str, pairs: int, tolerance: float) -> int:
    before: Seconds = {}
    after: Seconds = {}
    for attempt in range(3):
        for _ in range(pairs):
            keep_minima(before, measure(base_tree))
            keep_minima(after, measure(ROOT))
        slower = regressions(before, after, tolerance)
        if not slower:
            break
        if attempt < 2:
            print(f"bench-check: measuring again: {', '.join(slower)}", file=sys.stderr)
    print(report(before, after, base))
    for call, share in slower.items():
        print(f"bench-check: {call} is {share:.0%} slower than at {base[:12]}", file=sys.stderr)
    return 1 if slower else 0


def keep_minima(best: Seconds, measured: Seconds) -> None:
    for call, seconds in measured.items():
        best[call] = min(seconds, best.get(call, seconds))


def regressions(before: Seconds, after: Seconds, tolerance: float) -> dict[str, float]:
    """Calls that are slower by more than `tolerance`, and by how much. New calls have no before."""
    shares = {call: after[call] / before[call] - 1 for call in after if call in before}
    return {call: share for call, share in shares.items() if share > tolerance}


def report(before: Seconds, after: Seconds, base: str) -> str:
    width = max(map(len, after))
    lines = [f"{'µs for one call, min':{width}}  {base[:9]:>9}  {'here':>9}  change"]
    for call, seconds in after.items():
        if call in before:
            change = f"{seconds / before[call] - 1:+.1%}"
            lines.append(
                f"{call:{width}}  {before[call] * 1e6:9.3f}  {seconds * 1e6:9.3f}  {change}"
            )
        else:
            lines.append(f"{call:{width}}  {'':9}  {seconds * 1e6:9.3f}  new")
    return "\n".join(lines)


def measure(tree: Path) -> Seconds:
    """One run of this tree's `noalias.bench.overhead` on the sources in `tree`."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "noalias.bench.overhead"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotMeasured(f"the benchmark failed on {tree}:\n{done.stderr.strip()}")
    rows = json.loads(done.stdout)
    return {f"{row['call']}, {row['mode']}": row["time"]["min_s"] for row in rows}


@contextmanager
def sources_of(base: str) -> Iterator[Path]:
    """The sources at `base`, with this tree's benchmarks in them, so that both run the same."""
    with tempfile.TemporaryDirectory(prefix="noalias-bench-check-") as folder:
        tree = Path(folder) / "base"
        git("worktree", "add", "--detach", "--quiet", str(tree), base)
        try:
            target = tree / "src" / "noalias" / "bench"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(ROOT / "src" / "noalias" / "bench", target)
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree))


def merge_base() -> str:
    """Where this branch left main; on main itself HEAD if src is changed, else the one before."""
    head = commit("HEAD")
    for main_branch in MAINS:
        try:
            base = git("merge-base", "HEAD", commit(main_branch))
        except NotMeasured:
            continue
        if base != head or git("status", "--porcelain", "--", "src"):
            return base
    try:
        return commit("HEAD~1")
    except NotMeasured:
        raise NotMeasured(
            "HEAD is the first commit and src is unchanged, so there is nothing to compare with; "
            "name a commit: --base REF"
        ) from None


def commit(ref: str) -> str:
    try:
        return git("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    except NotMeasured:
        raise NotMeasured(
            f"{ref!r} names no commit here; fetch it, or give another --base"
        ) from None


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotMeasured(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
