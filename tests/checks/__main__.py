"""PyTorch's own checks with the cures on, written as JSON.

    python -m tests.checks --out benchmarks/results/pytorchs-checks.json    # all
    python -m tests.checks --samples 1                                      # the first of each

Exits with 1 where a check ends otherwise than on stock PyTorch.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from itertools import chain
from pathlib import Path

import torch

from tests.checks import cases, outcomes


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checks")
    parser.add_argument("--samples", type=int, help="of each operator and module; default: all")
    parser.add_argument("--kind", choices=("operators", "modules"), help="default: both")
    parser.add_argument("--out", type=Path, help="the JSON file")
    parser.add_argument("--only", default="", help="operators and modules whose name has this")
    args = parser.parse_args(argv)

    torch.set_num_threads(1)

    def wanted(name: str) -> bool:
        return args.only in name

    sources = {"operators": cases.operators, "modules": cases.modules}
    every = [
        source(args.samples, wanted)
        for kind, source in sources.items()
        if args.kind in (None, kind)
    ]
    result = outcomes.compare(chain(*every))
    data = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "samples": args.samples or "all",
        "kind": args.kind or "all",
        "outcomes": result.outcomes,
        "acted": result.acted,
        "differing": result.differing,
        "failed on stock": result.failed,
    }
    text = json.dumps(data, indent=2)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)
    for where, (stock, cured) in result.differing.items():
        print(f"{where}:\n  stock: {stock}\n  cured: {cured}", file=sys.stderr)
    return 1 if result.differing else 0


if __name__ == "__main__":
    sys.exit(main())
