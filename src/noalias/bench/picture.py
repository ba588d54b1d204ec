"""Pictures of the tables, by matplotlib (the extra `bench`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.bench import loops
from noalias.bench.compare import Comparison, Skipped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from noalias.bench.growth import Growth, Point
    from noalias.bench.three_way import ThreeWay

# Colour-blind safe (Okabe and Ito): vermilion for what costs, blue for ours, grey between.
_STOCK, _OURS, _BY_HAND = "#d55e00", "#0072b2", "#7f7f7f"


class PictureUnavailable(RuntimeError):
    """matplotlib is not installed."""


def figure(columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure with one row of axes, drawn without a display.

    Raises:
        PictureUnavailable: where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise PictureUnavailable(
            f"--picture needs matplotlib ({error}): pip install 'noalias[bench]'"
        ) from error
    drawn = Figure(figsize=(width, height), layout="constrained")
    axes = drawn.subplots(1, columns, squeeze=False)
    return drawn, list(axes[0])


def save(drawn: Figure, path: Path) -> None:
    """Write in the format of the suffix; an SVG of the same numbers is the same file."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "noalias", "svg.fonttype": "none"}):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        drawn.savefig(path, dpi=150, metadata=metadata)


def three_way(result: ThreeWay) -> Figure:
    """Bars: time, copies, bytes allocated, peak bytes."""
    drawn, axes = figure(4, 13, 3.4)
    names = [row.name for row in result.rows]
    colours = [_colour(name) for name in names]
    mebi = 2**20
    panels: tuple[tuple[str, list[float]], ...] = (
        ("time, min (ms)", [row.time.minimum * 1e3 for row in result.rows]),
        ("aten::copy_ calls", [float(row.counts.copies) for row in result.rows]),
        ("allocated (MiB)", [row.counts.allocated_bytes / mebi for row in result.rows]),
        ("peak (MiB)", [row.counts.peak_bytes / mebi for row in result.rows]),
    )
    for axis, (title, values) in zip(axes, panels, strict=True):
        bars = axis.bar(range(len(names)), values, color=colours)
        axis.bar_label(bars, fmt="%.4g", fontsize=8)
        axis.set_xticks(range(len(names)), names, rotation=30, ha="right", fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    shape = " × ".join(map(str, result.workload.shape))
    drawn.suptitle(
        f"{result.workload.layers} × (linear + {result.workload.activation}_), forward and "
        f"backward, {shape} → {result.workload.features}, {result.workload.device}",
        fontsize=11,
    )
    return drawn


def _colour(name: str) -> str:
    if name in ("before", "stock"):
        return _STOCK
    return _BY_HAND if name == "workaround" else _OURS


def growth(result: Growth) -> Figure:
    """Backward time (above: left, right by loop) and peak bytes, over steps, log axes."""
    drawn, axes = figure(4, 14, 3.6)
    for index, (name, _, _, by_hand) in enumerate(loops.LOOPS):
        points = [point for point in result.points if point.loop == name]
        exponents = {fit.variant: fit.exponent for fit in result.fits if fit.loop == name}
        time, peak = axes[2 * index], axes[2 * index + 1]
        for variant, label, colour in (
            ("stock", "stock", _STOCK),
            ("by hand", by_hand, _BY_HAND),
            ("cured", "enable()", _OURS),
        ):
            slope = f" (exponent {exponents[variant]:.2f})" if variant in exponents else ""
            for axis, series, name_of_line in (
                (time, _seconds, label + slope),
                (peak, _peak, label),
            ):
                known = [(p.steps, y) for p in points if (y := series(p, variant)) is not None]
                steps, values = zip(*known, strict=True) if known else ((), ())
                axis.plot(steps, values, label=name_of_line, color=colour, marker="o", markersize=3)
        time.set_title(f"{name}: backward (s)", fontsize=10)
        peak.set_title(f"{name}: peak bytes in backward", fontsize=10)
        for axis in (time, peak):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("steps", fontsize=9)
            axis.grid(visible=True, alpha=0.3)
            axis.legend(fontsize=7)
    return drawn


def _seconds(point: Point, variant: str) -> float | None:
    timing = {"stock": point.stock, "cured": point.cured, "by hand": point.by_hand}[variant]
    return None if timing is None else timing.minimum


def _peak(point: Point, variant: str) -> int | None:
    return {
        "stock": point.stock_peak_bytes,
        "cured": point.cured_peak_bytes,
        "by hand": point.by_hand_peak_bytes,
    }[variant]


def comparisons(rows: Sequence[Comparison | Skipped]) -> Figure:
    """Enabled over stock, for each program that ran: step time, bytes allocated, peak bytes."""
    drawn, axes = figure(3, 13, 1.2 + 0.33 * len(rows))
    measured = [row for row in rows if isinstance(row, Comparison)]
    panels = (
        ("step time, median ratio", [row.time.median for row in measured]),
        ("bytes allocated", [_share(row, "allocated_bytes") for row in measured]),
        ("peak bytes", [_share(row, "peak_bytes") for row in measured]),
    )
    places = range(len(measured))
    for index, (axis, (title, values)) in enumerate(zip(axes, panels, strict=True)):
        bars = axis.barh(places, values, color=_OURS)
        axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
        axis.axvline(1.0, color=_STOCK, linewidth=1)
        axis.set_yticks(
            places, [row.program for row in measured] if index == 0 else [""] * len(measured)
        )
        axis.set_xlim(0, max([1.15, *(1.12 * value for value in values)]))
        axis.invert_yaxis()
        axis.set_title(f"{title}: enable() over stock", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    return drawn


def _share(row: Comparison, which: str) -> float:
    stock: int = getattr(row.stock.counts, which)
    enabled: int = getattr(row.enabled.counts, which)
    return enabled / stock if stock else 1.0
