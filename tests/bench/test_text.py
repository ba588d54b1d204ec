"""How numbers, tables and JSON are written."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from noalias.bench import text
from noalias.bench.machine import describe
from noalias.bench.measure import Timing


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.5, "2.50 s"), (0.0164, "16.4 ms"), (3.2e-6, "3.20 µs"), (4.5e-8, "0.04 µs")],
)
def test_seconds_take_the_unit_that_fits(value: float, shown: str) -> None:
    assert text.seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12, "12 B"), (2048, "2.00 KiB"), (1000 * 2**20, "1000 MiB"), (20 * 2**30, "20.0 GiB")],
)
def test_sizes_take_the_unit_that_fits(value: int, shown: str) -> None:
    assert text.size(value) == shown


def test_a_change_shows_counts_as_counts_and_measures_in_three_digits() -> None:
    assert text.change(14, 0) == "14 → 0"
    assert text.change(189.24, 9.5) == "189 → 9.50"


def _shown(width: int, *cells: str) -> str:
    out = io.StringIO()
    table = text.grid("title", ("name", "value"), [cells], "a caption")
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_cells_are_text_and_never_markup() -> None:
    assert "[red]x[/red]" in _shown(80, "[red]x[/red]", "1")


@dataclass(frozen=True)
class _Row:
    name: str
    time: Timing
    parts: tuple[int, ...]
    missing: None = None


def test_json_of_nested_results() -> None:
    row = _Row("a", Timing((0.5,)), (1, 2))
    assert text.to_json({"rows": [row]}) == {
        "rows": [
            {
                "name": "a",
                "time": {"min_s": 0.5, "median_s": 0.5, "rounds": 1},
                "parts": [1, 2],
                "missing": None,
            }
        ]
    }


def test_json_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="has no JSON form"):
        text.to_json(object())


def test_heading_names_machine_threads_and_versions() -> None:
    import torch

    import noalias

    line = text.heading(describe(torch.device("cpu")))
    for part in (torch.__version__, noalias.__version__, "device cpu", "thread"):
        assert part in line
