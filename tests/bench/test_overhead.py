"""The overhead of single calls: every call under every mode, also on sources without a feature."""

from __future__ import annotations

import json
from functools import cache

import pytest

import noalias
from noalias.bench import overhead
from noalias.bench.overhead import OverheadRow


@cache
def _rows() -> tuple[OverheadRow, ...]:
    return overhead.run(rounds=1, calls=3)


def test_every_call_is_measured_under_every_mode() -> None:
    modes = [mode for mode, name in overhead.MODES.items() if name is None or _has(name)]
    assert {"stock", "cures on"} <= set(modes)
    assert {(row.call, row.mode) for row in _rows()} == {
        (call, mode) for call in overhead.CALLS for mode in modes
    }


def _has(name: str) -> bool:
    try:
        return hasattr(noalias, name)
    except ImportError:  # announced in the package, its module not written
        return False


def test_stock_adds_nothing_to_itself() -> None:
    assert {row.added for row in _rows() if row.mode == "stock"} == {0.0}


def test_a_mode_that_the_sources_do_not_have_yet_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(overhead.MODES, "audit on", "no_such_feature")
    assert not hasattr(noalias, "no_such_feature")
    assert "audit on" not in {row.mode for row in overhead.run(rounds=1, calls=1)}


def test_the_module_prints_its_rows_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(overhead, "run", _rows)
    assert overhead.main() == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(row["call"], row["mode"]) for row in printed] == [(r.call, r.mode) for r in _rows()]
    assert set(printed[0]["time"]) == {"min_s", "median_s", "rounds"}
