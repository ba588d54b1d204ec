from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET

import audit_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.audit.report import memory_svg
from noalias.audit.result import MemoryCurve

MIB = 2**20


def charts(curve: MemoryCurve) -> list[ET.Element]:
    return list(ET.fromstring(f"<div>{memory_svg.draw(curve)}</div>"))


def test_there_is_one_chart_for_wide_and_one_for_narrow_screens() -> None:
    curve = MemoryCurve(samples.curve(1.0), samples.curve(0.2))
    assert [svg.get("class") for svg in charts(curve)] == ["memory wide", "memory narrow"]


def test_both_peaks_are_named() -> None:
    curve = MemoryCurve(((0.0, 0), (1.0, 3 * MIB), (2.0, 0)), ((0.0, 0), (1.0, 2 * MIB)))
    texts = [text.text for text in charts(curve)[0].iter("text")]
    assert "stock peak 3 MiB" in texts
    assert "cured peak 2 MiB" in texts


def test_a_line_is_a_staircase_from_the_first_point_to_the_last() -> None:
    (line, *_) = [
        path.get("d", "")
        for path in charts(MemoryCurve(((0.0, 0), (1.0, MIB), (2.0, 0))))[0].iter("path")
        if path.get("class") == "line"
    ]
    assert line.startswith("M64.0 224.0H")
    assert line.count("H") == line.count("V") == 2


def test_no_points_no_chart() -> None:
    assert charts(MemoryCurve()) == []


@pytest.mark.parametrize(
    ("largest", "base", "expected"),
    [
        (420 * MIB, 1024.0, [0, 100 * MIB, 200 * MIB, 300 * MIB, 400 * MIB]),
        (1.2 * 2**30, 1024.0, [0, 0.25 * 2**30, 0.5 * 2**30, 0.75 * 2**30, 2**30]),
        (33.3, 1000.0, [0, 10, 20, 30]),
        (0, 1000.0, [0]),
    ],
)
def test_ticks_are_round_numbers(largest: float, base: float, expected: list[float]) -> None:
    assert memory_svg.ticks(largest, 5, base) == pytest.approx(expected)


points = st.lists(st.tuples(st.floats(0, 1e6), st.integers(-(2**40), 2**50)), max_size=30).map(
    tuple
)


@given(points, points)
def test_any_curve_gives_well_formed_charts(
    before: tuple[tuple[float, int], ...], after: tuple[tuple[float, int], ...]
) -> None:
    for svg in charts(MemoryCurve(before, after)):
        assert "nan" not in ET.tostring(svg, encoding="unicode")


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=3000))
def test_thinning_keeps_order_and_extremes(sizes: list[int]) -> None:
    curve = [(float(i), size) for i, size in enumerate(sizes)]
    kept = memory_svg.thin(curve, most=100)
    assert len(kept) <= max(102, 0) or len(curve) <= 100
    assert all(a[0] < b[0] for a, b in itertools.pairwise(kept))
    assert max(size for _, size in kept) == max(sizes)
    assert min(size for _, size in kept) == min(sizes)
