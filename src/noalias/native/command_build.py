"""``noalias build``: compile the core ahead of its first use."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

SUMMARY = "Compile the C++ core for the installed PyTorch ahead of its first use."

_EPILOG = """\
An image, or a cluster whose nodes cannot write the cache, builds once and names the folder:

  noalias build -o /opt/noalias-core
  export NOALIAS_PREBUILT=/opt/noalias-core
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("--force", action="store_true", help="compile even when it is there")
    parser.add_argument(
        "--clean", action="store_true", help="delete every built core from the cache, build nothing"
    )
    parser.add_argument(
        "-o",
        "--dest",
        type=Path,
        metavar="DIR",
        help="build into DIR, readable by all users, for NOALIAS_PREBUILT",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    from noalias.native import build, cache, trust

    place: Path = cache.root() if args.dest is None else args.dest.expanduser().absolute()
    if args.clean:
        if place.is_dir():
            trust.check_root(place)
        freed = cache.clean(place)
        text = f"noalias: deleted {freed / 2**20:.1f} MiB of built cores from {place}"
        print(json.dumps({"cache": str(place), "freed": freed}) if args.format == "json" else text)
        return 0
    if args.dest is not None:
        entry, built = build.into(place, force=args.force, shared=True)
    else:
        found = None if args.force else build.find()
        entry, built = (found, False) if found else build.into(place, force=args.force)
    if args.format == "json":
        facts = {
            "path": str(entry.library),
            "torch": entry.torch,
            "compiler": entry.compiler,
            "bytes": entry.size,
            "seconds": entry.seconds,
            "built_now": built,
        }
        print(json.dumps(facts, indent=2))
        return 0
    done = "compiled" if built else "already there, compiled"
    print(
        f"noalias: core for torch {entry.torch} {done} in {entry.seconds:.1f} s "
        f"({entry.size / 2**20:.1f} MiB)\n{entry.library}"
    )
    return 0
