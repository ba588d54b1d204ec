"""`noalias bench`: measure, and print tables, JSON, or a picture."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.bench import options

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

    from noalias.bench.progress import Progress

SUMMARY = "Measure linear, the cures, loops over time, real models and single calls."

SCHEMA = "noalias-bench/1"
DEFAULT = ("three-way", "hot-path")

_EPILOG = """\
tables:
  three-way  linear and an in-place activation: before PyTorch 2.15, as installed, by hand, noalias
  hot-path   tiny inputs, one call: F.linear against noalias.linear
  compiled   torch.compile: the time it takes, and a compiled step's
  inplace    in-place calls with nothing to cure, and small programs with a hidden base
  growth     loops over time: backward time and peak bytes over the number of steps
  models     training steps of public networks, stock against enable()
  overhead   what the cures and the audit add to one call (CPU)
  all        every one of them

Times are minima and medians over interleaved rounds in one process. On a busy machine raise
--rounds. The sizes of every default run on two cores; --preset seed is for a GPU.
"""


class _Refused(Exception):
    """What was asked for cannot be done; the message names value, reason and fix."""


def configure(parser: argparse.ArgumentParser) -> None:
    # Names of presets, dtypes and activations are needed here, and with them torch.
    from noalias.bench import three_way

    parser.epilog = _EPILOG
    parser.add_argument(
        "tables",
        nargs="*",
        metavar="TABLE",
        type=options.one_of([*_MEASUREMENTS, "all"]),
        help=f"which tables, see below (default: {' '.join(DEFAULT)})",
    )
    add = parser.add_argument
    add("--format", choices=("text", "json"), default="text")
    add("-o", "--output", metavar="FILE", type=options.file, help="write there instead")
    add(
        "--picture",
        metavar="FILE",
        type=options.picture,
        help="draw three-way, growth or models too (.png, .svg, .pdf; needs noalias[bench])",
    )
    add("--rounds", metavar="N", type=options.positive, help="interleaved rounds, for every table")
    add("--threads", metavar="N", type=options.positive, help="PyTorch's intra-op threads")
    add("--device", metavar="NAME", type=options.device, default="cpu", help="cpu (default), cuda")
    add = parser.add_argument_group("three-way").add_argument
    add(
        "--preset",
        metavar="NAME",
        type=options.one_of(three_way.PRESETS),
        default="quick",
        help="quick (default), or seed: 64x64x64x1000 to 1000 features, 1000 MiB each",
    )
    add("--shape", metavar="AxBx...", type=options.shape, help="of the input, features last")
    add("--features", metavar="N", type=options.positive, help="of the output (default: as input)")
    add("--layers", metavar="N", type=options.positive, default=1, help="linear + activation each")
    add(
        "--dtype",
        metavar="NAME",
        type=options.one_of(three_way.DTYPES),
        default="float32",
        help=", ".join(three_way.DTYPES),
    )
    add(
        "--activation",
        metavar="NAME",
        type=options.one_of(three_way.ACTIVATIONS),
        default="relu",
        help=", ".join(three_way.ACTIVATIONS),
    )
    add = parser.add_argument_group("growth").add_argument
    add("--steps", metavar="A,B,...", type=options.steps, help="default: 64,128,...,4096")
    add(
        "--stock-limit",
        metavar="SECONDS",
        type=options.seconds,
        default=10.0,
        help="leave stock out where one backward is predicted to take longer (default: 10)",
    )
    add(
        "--cold-caches",
        action="store_true",
        help="fill the caches with something else before each backward, as the rest of a training "
        "step does",
    )


def run(args: argparse.Namespace) -> int:
    """0: measured and written. 2: refused, with the reason on stderr."""
    try:
        _run(args)
    except _Refused as refusal:
        print(f"noalias bench: {refusal}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> None:
    import torch

    from noalias.bench import machine, text

    names = tuple(_MEASUREMENTS) if "all" in args.tables else tuple(args.tables) or DEFAULT
    if args.picture is not None:
        _check_picture(args.picture, names)
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    results = _measure(dict.fromkeys(names), args)
    described = machine.describe(torch.device(args.device))
    if args.format == "json":
        content = {
            "schema": SCHEMA,
            "machine": text.to_json(described),
            "tables": {name: text.to_json(result.data) for name, result in results.items()},
        }
        _write(json.dumps(content, indent=1) + "\n", args.output)
    else:
        views = [view for result in results.values() for view in result.views]
        _print(text.heading(described), views, args.output)
    if args.picture is not None:
        _draw(results, args.picture)


@dataclass(frozen=True)
class _Measured:
    """One table's result: as data, as what a terminal shows, as a picture."""

    data: object
    views: tuple[RenderableType, ...]
    draw: Callable[[], Figure] | None = None


def _measure(names: Mapping[str, None], args: argparse.Namespace) -> dict[str, _Measured]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Display

    from noalias.bench.progress import Bar

    # On stderr, so that a pipe or a file gets the results alone.
    terminal = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Display(
        *columns, console=terminal, transient=True, disable=not terminal.is_terminal
    ) as display:
        return {name: _MEASUREMENTS[name](args, Bar(display)) for name in names}


def _three_way(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import picture, three_way

    shape, features = three_way.PRESETS[args.preset]
    if args.shape is not None:
        shape, features = args.shape, args.shape[-1]
    workload = three_way.Workload(
        shape=shape,
        features=features if args.features is None else args.features,
        dtype=args.dtype,
        device=args.device,
        activation=args.activation,
        layers=args.layers,
    )
    try:
        result = three_way.run(workload, rounds=args.rounds or 20, progress=progress)
    except (RuntimeError, MemoryError) as error:
        if not _out_of_memory(error):
            raise
        raise _Refused(
            f"the input {'x'.join(map(str, shape))} with {workload.features} features "
            f"({args.dtype}) does not fit into the memory of {args.device}; give a smaller --shape"
        ) from error
    return _Measured(
        result,
        (three_way.table(result), *map(_line, result.notes)),
        lambda: picture.three_way(result),
    )


def _out_of_memory(error: Exception) -> bool:
    import torch

    # The CPU allocator raises a plain RuntimeError with this text.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(
        error
    )


def _hot_path(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import hot_path

    rows = hot_path.run(device=args.device, rounds=args.rounds or 400, progress=progress)
    return _Measured(rows, (hot_path.table(rows),))


def _compiled(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import compiled

    rows = compiled.run(device=args.device, rounds=args.rounds or 100, progress=progress)
    return _Measured(rows, (compiled.table(rows),))


def _inplace(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import compare, inplace

    result = inplace.run(
        device=args.device,
        rounds=args.rounds or 150,
        program_rounds=args.rounds or 15,
        progress=progress,
    )
    title = "In-place operators on a view of a hidden base: forward and backward, stock → enabled"
    return _Measured(
        result, (inplace.added_table(result.added), compare.table(title, result.cured))
    )


def _growth(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import compare, growth, picture

    result = growth.run(
        device=args.device,
        steps=args.steps or growth.STEPS,
        rounds=args.rounds or 10,
        stock_limit=args.stock_limit,
        cold_caches=args.cold_caches,
        progress=progress,
    )
    programs = compare.table("Whole programs: forward and backward", result.programs)
    return _Measured(
        result,
        (growth.table(result), *([growth.fits_table(result)] if result.fits else []), programs),
        lambda: picture.growth(result),
    )


def _models(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import compare, models, picture

    rows = models.run(device=args.device, rounds=args.rounds or 10, progress=progress)
    title = "Training steps (forward and backward), stock → enabled"
    return _Measured(
        rows,
        (compare.table(title, rows), _line(models.summary(rows))),
        lambda: picture.comparisons(rows),
    )


def _overhead(args: argparse.Namespace, progress: Progress) -> _Measured:
    from noalias.bench import overhead

    rows = overhead.run(rounds=args.rounds or 100, progress=progress)
    return _Measured(rows, (overhead.table(rows),))


_MEASUREMENTS: dict[str, Callable[[argparse.Namespace, Progress], _Measured]] = {
    "three-way": _three_way,
    "hot-path": _hot_path,
    "compiled": _compiled,
    "inplace": _inplace,
    "growth": _growth,
    "models": _models,
    "overhead": _overhead,
}
_DRAWN = ("three-way", "growth", "models")


def _line(words: str) -> RenderableType:
    from rich.text import Text

    return Text(words)


def _check_picture(path: Path, names: Sequence[str]) -> None:
    from noalias.bench import picture

    if not set(names) & set(_DRAWN):
        raise _Refused(
            f"--picture {path}: there is no picture of {', '.join(names)}; "
            f"add {' or '.join(_DRAWN)}"
        )
    # Whether matplotlib is there should be known before minutes of measuring.
    try:
        picture.figure(1, 1, 1)
    except picture.PictureUnavailable as error:
        raise _Refused(str(error)) from error


def _write(content: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(content)
        return
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        raise _Refused(f"-o {output} cannot be written: {error.strerror}") from error


def _print(heading: str, views: Sequence[RenderableType], output: Path | None) -> None:
    from rich.console import Console

    if output is None:
        _emit(Console(), heading, views)
        return
    buffer = io.StringIO()
    _emit(Console(file=buffer, width=200), heading, views)
    _write(buffer.getvalue(), output)


def _emit(console: Console, heading: str, views: Sequence[RenderableType]) -> None:
    from rich.table import Table

    # A table is never squeezed: where it is wider than the terminal, the terminal wraps its lines.
    unbounded = console.options.update(max_width=sys.maxsize)
    needed = [console.measure(v, options=unbounded).maximum for v in views if isinstance(v, Table)]
    console.width = max([console.width, *needed])
    console.print(heading, markup=False, highlight=False, soft_wrap=True)
    for view in views:
        console.print()
        console.print(view)


def _draw(results: Mapping[str, _Measured], path: Path) -> None:
    from noalias.bench import picture

    drawings = {name: result.draw for name, result in results.items() if result.draw is not None}
    for name, draw in drawings.items():
        # One file each; with several, the table's name tells them apart.
        target = path if len(drawings) == 1 else path.with_stem(f"{path.stem}-{name}")
        try:
            picture.save(draw(), target)
        except OSError as error:
            raise _Refused(f"--picture {target} cannot be written: {error.strerror}") from error
