"""`noalias bench models`: what `enable()` does for networks as their authors wrote them.

The gain in time is large where a step is bound by memory (instance norm with an in-place
activation, sliced logits, loops over time) and a few per cent where products or convolutions take
it all. Bytes and copies do not depend on that.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING

import torch

from noalias.bench.compare import Comparison, Program, Skipped, compare
from noalias.bench.zoo import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noalias.bench.progress import Progress

# A gain of less than this in step time is called small.
SMALL = 0.05


def run(
    *,
    device: str = "cpu",
    rounds: int = 10,
    budget: float | None = 30.0,
    programs: Sequence[Program] = PROGRAMS,
    progress: Progress | None = None,
) -> tuple[Comparison | Skipped, ...]:
    """Compare every program; one whose packages are missing or broken is `Skipped`.

    Args:
        budget: seconds for each program after which no further round starts.

    Raises:
        noalias.NativeUnavailable: where the core cannot be built.
    """
    rows: list[Comparison | Skipped] = []
    for program in programs:
        reason = missing(program)
        if reason is not None:
            rows.append(Skipped(program.name, reason))
            continue
        rows.append(
            compare(program, torch.device(device), rounds=rounds, budget=budget, progress=progress)
        )
    return tuple(rows)


def missing(program: Program) -> str | None:
    """Why `program` cannot be built here, and the command that helps; `None` if it can."""
    for module, distribution in program.requires:
        try:
            # What a third party warns about while it is imported is not about this program.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.partition(".")[0] != module:
                return f"{module} needs {error.name}, not installed: pip install {error.name}"
            return f"{module} is not installed: pip install {distribution}"
        except Exception as error:  # An extension built for another torch raises anything.
            return (
                f"{module} does not import with torch {torch.__version__} "
                f"({type(error).__name__}: {error}): install a build for this torch, "
                f"pip install --upgrade {distribution}"
            )
    return None


def summary(rows: Sequence[Comparison | Skipped]) -> str:
    """Plain words: in which programs the gain in time is large, and in which it is small."""
    measured = [row for row in rows if isinstance(row, Comparison)]
    large = [row.program for row in measured if row.time.median <= 1 - SMALL]
    slower = [row.program for row in measured if row.time.median >= 1 + SMALL]
    small = [row.program for row in measured if abs(1 - row.time.median) < SMALL]
    parts = [
        f"Step time falls by {SMALL:.0%} or more in: {', '.join(large) or 'none'}.",
        f"Within {SMALL:.0%} of stock, so that bytes are the gain: {', '.join(small) or 'none'}.",
    ]
    if slower:
        parts.append(f"Slower by {SMALL:.0%} or more in: {', '.join(slower)}.")
    return " ".join(parts)
