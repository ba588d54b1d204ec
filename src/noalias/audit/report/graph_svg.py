"""Draws the backward graph around a finding as inline SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noalias.audit.report.layout import Placed, place
from noalias.audit.report.markup import Markup, tag
from noalias.visible import visible

if TYPE_CHECKING:
    from noalias.audit.finding import Graph, GraphNode

LARGEST = 40
"""Nodes that are drawn; a larger excerpt is named in words instead."""

_CHARACTER, _PADDING, _HEIGHT, _ROW, _MARGIN = 7.0, 20.0, 28.0, 54.0, 2.0


def short_name(node: GraphNode) -> str:
    """The node's name as people say it: without its C++ namespace, on one line."""
    return visible(node.name.rpartition("::")[2], limit=30)


def draw(graph: Graph, caption: str) -> Markup:
    """The graph, gradients flowing downwards; `caption` is its accessible name."""
    if not graph.nodes:
        return tag("p", "no node is left", class_="muted")
    if len(graph.nodes) > LARGEST:
        return tag("p", f"{len(graph.nodes)} nodes, too many to draw", class_="muted")
    names = {node.id: short_name(node) for node in graph.nodes}
    widths = {key: max(44.0, len(name) * _CHARACTER + _PADDING) for key, name in names.items()}
    placed = place(graph, widths)
    width = placed.width + 2 * _MARGIN
    height = (placed.layers - 1) * _ROW + _HEIGHT + 2 * _MARGIN
    return tag(
        "svg",
        tag("title", f"{caption}: {', '.join(names.values())}"),
        [_edge(path) for path in placed.paths],
        [_node(node, names[node.id], widths[node.id], placed) for node in graph.nodes],
        class_="graph",
        role="img",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=round(width),
        height=round(height),
    )


def _node(node: GraphNode, name: str, width: float, placed: Placed) -> Markup:
    x = placed.x[node.id] + _MARGIN
    top = placed.layer[node.id] * _ROW + _MARGIN
    return tag(
        "g",
        tag("rect", x=x - width / 2, y=top, width=width, height=_HEIGHT, rx=6),
        tag("text", name, x=x, y=top + _HEIGHT / 2 + 4, text_anchor="middle"),
        class_=f"node {node.kind}",
    )


def _edge(path: tuple[tuple[float, int], ...]) -> Markup:
    """A curve from the bottom of one node to the top of the other, through the bends."""
    points: list[tuple[float, float]] = []
    for index, (x, layer) in enumerate(path):
        top = layer * _ROW + _MARGIN
        if index == 0:
            points.append((x + _MARGIN, top + _HEIGHT))
        elif index == len(path) - 1:
            points.append((x + _MARGIN, top - 5))
        else:
            points.extend(((x + _MARGIN, top), (x + _MARGIN, top + _HEIGHT)))
    x, y = points[0]
    drawn = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in points[1:]:
        middle = (y + next_y) / 2
        drawn.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    head = f"M{x - 3.5:.1f} {y - 1:.1f}L{x:.1f} {y + 5:.1f}L{x + 3.5:.1f} {y - 1:.1f}Z"
    line = tag("path", d=Markup(" ".join(drawn)))
    return tag("g", line, tag("path", d=head, class_="head"), class_="edge")
