"""The table of what `torch.compile` makes of linear."""

from __future__ import annotations

from noalias.bench import compiled, text
from noalias.bench.measure import Ratio, Timing


def test_the_table_gives_both_ratios_and_the_seconds_of_stock() -> None:
    row = compiled.CompiledRow(
        shape=(8, 64, 256),
        stock_compile=Timing((2.0, 4.0)),
        our_compile=Timing((2.0, 3.0)),
        compile_to_stock=Ratio(1.0, 0.875),
        stock=Timing((0.001,)),
        ours=Timing((0.0011,)),
        to_stock=Ratio(1.1, 1.1),
    )
    grid = compiled.table((row,))
    cells = [str(cell) for column in grid.columns for cell in column.cells]
    assert cells == ["8 × 64 × 256", text.seconds(2.0), "1.00 (0.88)", "1.00 ms", "1.10 (1.10)"]
