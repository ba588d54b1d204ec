from __future__ import annotations

import json

import audit_samples as samples
import pytest

from noalias.audit.codec import FormatError
from noalias.audit.finding import Finding, Graph, GraphNode

DOCUMENTED = {
    "code", "file", "line", "module", "operator", "shape", "dtype", "bytes", "count", "verdict",
    "observers", "copies", "extra_peak_bytes", "cure", "source", "made_by", "message",
}  # fmt: skip


@pytest.mark.parametrize("finding", samples.full().findings, ids=lambda f: f.code)
def test_json_round_trip_keeps_everything(finding: Finding) -> None:
    text = json.dumps(finding.to_json())
    assert Finding.from_json(json.loads(text)) == finding


def test_json_has_the_documented_keys() -> None:
    value = samples.HIDDEN.to_json()
    assert isinstance(value, dict)
    assert set(value) >= DOCUMENTED
    assert value["made_by"] == {
        "operator": "aten::instance_norm",
        "file": "/home/ada/seg/blocks.py",
        "line": 40,
        "source": "x = self.norm(self.conv(x))",
    }


def test_a_verdict_that_is_none_of_the_three_is_refused() -> None:
    value = samples.HIDDEN.to_json()
    assert isinstance(value, dict)
    value["verdict"] = "maybe"
    with pytest.raises(
        FormatError, match=r"finding\.verdict must be one of 'hidden', 'observable'"
    ):
        Finding.from_json(value)


def test_an_edge_to_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="the node 'b', which the graph lacks"):
        Graph((GraphNode("a", "A"),), (("a", "b"),))


def test_two_nodes_with_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        Graph((GraphNode("a", "A"), GraphNode("a", "B")), ())


def test_bytes_moved_counts_one_base_for_each_copy() -> None:
    assert samples.HIDDEN.bytes_moved == 4 * 27 * samples.MIB


def test_a_place_without_a_line_is_the_file() -> None:
    from dataclasses import replace

    assert samples.HIDDEN.place == "/home/ada/seg/blocks.py:41"
    assert replace(samples.HIDDEN, line=0).place == "/home/ada/seg/blocks.py"
