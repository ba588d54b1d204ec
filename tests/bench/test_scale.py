"""The bytes that linear communicates on many devices, counted on a small fake process group."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from noalias.bench import scale
from noalias.bench.scale import Layer

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this PyTorch is built without distributed"
)

LAYERS = (
    Layer("row", 1, 8, 4, "S2", "S1"),
    Layer("gathered", 2, 8, 4, "S1", "S0"),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two devices, sequences of four, a batch of one; bfloat16, as there."""
    monkeypatch.setattr(scale, "MESH", {"tensor": 2})
    monkeypatch.setattr(scale, "SEQUENCE", 4)
    monkeypatch.setattr(scale, "SCENARIOS", {"small": (LAYERS, 1)})


def test_a_row_layer_communicates_nothing_and_a_gathered_operand_its_other_part(
    small: None,
) -> None:
    result = list(scale.report())[-1]
    row, gathered = result["scenarios"]["small"]

    for which in ("stock", "noalias"):
        assert row[which]["forward"] == row[which]["backward"] == 0
        assert row[which]["kinds"] == {}
    # Either the input (1 x 4 x 8) or the weight (4 x 8) has its other half fetched, 2 bytes each.
    assert gathered["noalias"]["forward"] == 4 * 8 * 2 / 2
    assert gathered["noalias"]["message"] == ""


def test_a_run_goes_on_behind_the_layers_that_its_file_has(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.json"
    first = next(scale.report())
    marked = {**first["scenarios"]["small"][0]["noalias"], "forward": 2.0**20}
    first["scenarios"]["small"] = [{**first["scenarios"]["small"][0], "noalias": marked}]
    path.write_text(json.dumps(first), encoding="utf-8")

    assert scale.main(["--json", str(path)]) == 0
    rows = json.loads(path.read_text(encoding="utf-8"))["scenarios"]["small"]
    assert [row["layer"]["name"] for row in rows] == ["row", "gathered"]
    assert rows[0]["noalias"]["forward"] == 2.0**20  # not measured again
    assert "| row | `S2 × S1` | 0 MiB | none | 1 MiB | none |" in capsys.readouterr().out


def test_a_file_of_another_pytorch_is_refused_and_kept(
    small: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scale.json"
    text = json.dumps({"torch": "1.0", "scenarios": {"small": [{}]}})
    path.write_text(text, encoding="utf-8")

    assert scale.main(["--json", str(path)]) == 2
    assert path.read_text(encoding="utf-8") == text
    assert "PyTorch 1.0" in capsys.readouterr().err


def test_a_layer_that_raises_shows_it_and_so_does_the_block() -> None:
    bill = {"forward": math.nan, "backward": math.nan, "kinds": {}, "message": "uneven"}
    fine = {"forward": 0.0, "backward": 0.0, "kinds": {}, "message": ""}
    layer = {"name": "row", "count": 1, "in_features": 8, "out_features": 4}
    row = {"layer": {**layer, "input": "S2", "weight": "S1"}, "stock": bill, "noalias": fine}
    table = scale.markdown({"scenarios": {"small": [row]}})
    assert "| row | `S2 × S1` | raises |  | 0 MiB | none |" in table
    assert "| **block** | | **raises** | | **0 MiB** | |" in table
