"""Pictures: what is drawn, from results made by hand."""

from __future__ import annotations

import builtins
from pathlib import Path
from types import ModuleType

import pytest

from noalias.bench import growth, picture
from noalias.bench.compare import Comparison, Side, Skipped
from noalias.bench.counts import Counts
from noalias.bench.growth import Growth, Point
from noalias.bench.measure import Ratio, Timing
from noalias.bench.three_way import Row, ThreeWay, Workload

MIB = 2**20


def _row(name: str, milliseconds: float) -> Row:
    time = Timing((milliseconds / 1e3,))
    return Row(name, time, Ratio(1.0, 1.0), Counts(4, 6 * MIB, 5 * MIB), 8, 1, True)


def _point(steps: int, stock: float | None) -> Point:
    return Point(
        loop="fill",
        by_hand_name="stack",
        steps=steps,
        stock=None if stock is None else Timing((stock,)),
        cured=Timing((1e-6 * steps,)),
        by_hand=Timing((1e-6 * steps,)),
        stock_over_cured=None,
        cured_over_by_hand=Ratio(1.0, 1.0),
        stock_peak_bytes=None if stock is None else MIB,
        cured_peak_bytes=MIB,
        by_hand_peak_bytes=MIB,
        gradients_equal=True,
    )


@pytest.fixture(autouse=True)
def _matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")


def test_three_way_has_a_panel_for_time_copies_bytes_and_peak() -> None:
    result = ThreeWay(Workload(), (_row("before", 16.4), _row("after", 10.4)))
    titles = [axis.get_title() for axis in picture.three_way(result).axes]
    assert titles == ["time, min (ms)", "aten::copy_ calls", "allocated (MiB)", "peak (MiB)"]


def test_growth_has_logarithmic_axes_and_names_the_exponent() -> None:
    points = tuple(_point(steps, 1e-9 * steps**2) for steps in (256, 512))
    result = Growth((*points, _point(1024, None)), growth._fits(points), ())
    time, *_ = picture.growth(result).axes
    assert time.get_xscale() == time.get_yscale() == "log"
    stock, *_ = time.get_lines()
    assert stock.get_label() == "stock (exponent 2.00)"
    assert list(stock.get_xdata()) == [256, 512]


def test_comparisons_leave_out_what_was_skipped() -> None:
    side = Side(0, Counts(0, 100, 50), Timing((1.0,)))
    less = Side(0, Counts(0, 60, 50), Timing((1.0,)))
    rows = [Comparison("net", side, less, Ratio(0.9, 0.9), "identical"), Skipped("other", "why")]
    _, allocated, _ = picture.comparisons(rows).axes
    assert [bar.get_width() for bar in allocated.patches] == [0.6]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_one_result_gives_one_file_whose_bytes_repeat(tmp_path: Path, suffix: str) -> None:
    result = ThreeWay(Workload(), (_row("before", 16.4), _row("after", 10.4)))
    files = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for file in files:
        picture.save(picture.three_way(result), file)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_without_matplotlib_the_error_gives_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *args: object, **kwargs: object) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(name, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(picture.PictureUnavailable, match=r"pip install 'noalias\[bench\]'"):
        picture.figure(1, 1, 1)
