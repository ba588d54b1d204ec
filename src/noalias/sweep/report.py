"""The sweep as a table, and hidden views by version as a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Table

from noalias.bench import picture
from noalias.bench.picture import PictureUnavailable
from noalias.bench.progress import Bar, Progress, Silent
from noalias.sweep.result import Cost, Sweep

__all__ = ["PictureUnavailable", "compare", "progress", "table"]


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar on standard error, nothing where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Silent()
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with RichProgress(*columns, console=console, transient=True) as display:
        yield Bar(display)


def table(sweep: Sweep) -> str:
    """One line for each operator or module with a hidden view."""
    shown = Table(
        title=f"{len(sweep.hidden)} of {sweep.entries} operators and modules return a view of a "
        f"hidden base (torch {sweep.machine.torch})",
        caption="cost of output.mul_(2) and its backward: copies, bytes allocated; refused: "
        "PyTorch forbids writing to this view; saved: backward needs the value, both must raise",
    )
    for column in ("name", "kind", "node", "samples", "stock", "cured", "gradients"):
        numeric = column in ("samples", "stock", "cured")
        shown.add_column(column, justify="right" if numeric else "left")
    for view in sweep.hidden:
        equal = {True: "equal", False: "DIFFER", None: "–"}[view.gradients_equal]
        stock, cured = _cost(view.stock), _cost(view.cured)
        shown.add_row(view.name, view.kind, view.node, str(view.samples), stock, cured, equal)
    return _rendered(shown)


def compare(sweeps: list[dict[str, Any]], path: Path | None) -> str:
    """Which names have a hidden view in which PyTorch; with ``path`` a picture of the counts, too.

    Raises:
        PictureUnavailable: matplotlib is not installed.
    """
    by_version = {
        str(sweep["machine"]["torch"]).split("+")[0]: {view["name"] for view in sweep["hidden"]}
        for sweep in sweeps
    }
    versions = sorted(by_version, key=lambda version: [int(part) for part in version.split(".")])
    shown = Table(title="hidden views by PyTorch version")
    shown.add_column("name")
    for version in versions:
        shown.add_column(version, justify="center")
    for name in sorted(set().union(*by_version.values())):
        shown.add_row(name, *("●" if name in by_version[version] else "" for version in versions))
    shown.add_section()
    shown.add_row("in all", *(str(len(by_version[version])) for version in versions))
    if path is not None:
        drawn, axes = picture.figure(1, 6.4, 3.2)
        heights = [len(by_version[version]) for version in versions]
        bars = axes[0].bar(versions, heights, color="#0072b2", width=0.6)
        axes[0].bar_label(bars)
        axes[0].set_ylabel("operators and modules")
        axes[0].set_title("results that are a view of a base nobody can see", fontsize=10)
        for side in ("top", "right"):
            axes[0].spines[side].set_visible(False)
        picture.save(drawn, path)
    return _rendered(shown)


def _cost(cost: Cost) -> str:
    return cost.error or f"{cost.copies}, {cost.bytes}"


def _rendered(shown: Table) -> str:
    text = StringIO()
    Console(file=text, width=120).print(shown)
    return text.getvalue()
