from __future__ import annotations

import xml.etree.ElementTree as ET

import audit_samples as samples

from noalias.audit.finding import Graph, GraphNode
from noalias.audit.report import graph_svg


def drawn(graph: Graph) -> ET.Element:
    return ET.fromstring(graph_svg.draw(graph, "Backward graph"))


def test_every_node_is_drawn_with_its_name_and_every_edge_with_its_head() -> None:
    assert samples.HIDDEN.graph is not None
    graph = samples.HIDDEN.graph.before
    svg = drawn(graph)
    names = [text.text for text in svg.iter("text")]
    assert names == [graph_svg.short_name(node) for node in graph.nodes]
    assert sum(g.get("class") == "edge" for g in svg.iter("g")) == len(graph.edges)


def test_nodes_that_only_copy_stand_out() -> None:
    assert samples.HIDDEN.graph is not None
    svg = drawn(samples.HIDDEN.graph.before)
    copies = [g.findtext("text") for g in svg.iter("g") if g.get("class") == "node copy"]
    assert copies == ["AsStridedBackward0", "CopySlices"]


def test_the_drawing_has_an_accessible_name() -> None:
    svg = drawn(samples.chain(("ReluBackward0", "op"), ("x", "leaf")))
    assert svg.get("role") == "img"
    assert svg.findtext("title") == "Backward graph: ReluBackward0, x"


def test_every_node_lies_inside_the_picture() -> None:
    assert samples.HIDDEN.graph is not None
    svg = drawn(samples.HIDDEN.graph.before)
    width, height = float(svg.get("width", "0")), float(svg.get("height", "0"))
    for box in svg.iter("rect"):
        x, y, w, h = (float(box.get(key, "nan")) for key in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + w <= width + 1
        assert y + h <= height + 1


def test_a_graph_too_large_to_read_is_not_drawn() -> None:
    nodes = tuple(GraphNode(str(i), "AddBackward0") for i in range(graph_svg.LARGEST + 1))
    assert "41 nodes, too many to draw" in graph_svg.draw(Graph(nodes, ()), "graph")


def test_an_empty_graph_says_so() -> None:
    assert "no node is left" in graph_svg.draw(Graph((), ()), "graph")
