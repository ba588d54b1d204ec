"""The hot path: which calls are compared, and what a row holds."""

from __future__ import annotations

from functools import cache

from noalias.bench import hot_path
from noalias.bench.hot_path import HotPathRow


@cache
def _rows() -> tuple[HotPathRow, ...]:
    return hot_path.run(rounds=1, calls=20)


def test_every_shape_bias_and_phase_is_measured() -> None:
    kinds = {(row.shape, row.bias, row.phase) for row in _rows()}
    assert len(_rows()) == len(kinds) == len(hot_path.SHAPES) * 2 * len(hot_path.PHASES)
    assert all(len(row.stock.seconds) == len(row.ours.seconds) == 1 for row in _rows())


def test_the_ratio_is_ours_over_stock() -> None:
    for row in _rows():
        assert abs(row.to_stock.of_minima - row.ours.minimum / row.stock.minimum) < 1e-9


def test_the_table_has_a_line_for_each_input_and_a_column_for_each_phase() -> None:
    table = hot_path.table(_rows())
    assert table.row_count == len(hot_path.SHAPES) * 2
    assert len(table.columns) == 1 + len(hot_path.PHASES)
