"""Draws the backward graph around a rewritten history: as it is, and as it is with the cure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from noalias import graph as graphs
from noalias.audit.finding import Graph, GraphExcerpt, GraphNode, NodeKind

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.graph import Node

_LEVELS = 3
"""Edges below the rewritten history that are drawn."""

_VIEWS = ("View", "Transpose", "Permute", "Select", "Slice", "Unsqueeze", "Squeeze", "Expand")


def around_rewrite(
    roots: Sequence[Tensor], sequence_number: int, wrapped: str, view: str, *, cured: bool
) -> GraphExcerpt | None:
    """The graph around the ``CopySlices`` with this sequence number, or None if it is not there.

    Args:
        roots: what backward is called on; read, and not kept.
        wrapped: name of the in-place operator's own node inside it.
        view: name of the node that made the view; "" for none.
        cured: whether the cure drops the view. Otherwise it keeps every node.
    """
    found = _find(roots, sequence_number)
    if found is None:
        return None
    node, restored = found
    before = _Drawing()
    top = before.add("CopySlices", "copy")
    if restored:
        before.edge(before.add("AsStridedBackward0", "copy"), top)
    before.below(top, node, _LEVELS)
    if not cured:
        return GraphExcerpt(before.graph(), before.graph())
    after = _Drawing()
    operator = after.add(_short(wrapped) or "the operator", "op")
    edges = [below for below, _ in node.next_functions]
    last = after.add(view, "view") if view else operator
    if last != operator:
        after.edge(operator, last)
    if edges and edges[0] is not None:
        after.edge(last, after.node(edges[0], _LEVELS - 1))
    for other in edges[1:]:
        if other is not None:
            after.edge(operator, after.node(other, _LEVELS - 1))
    return GraphExcerpt(before.graph(), after.graph())


def around_reads(base: str, node: str, count: int) -> GraphExcerpt:
    """The graph of ``count`` slices read from one tensor, whose own node is ``base``."""
    shown = min(count, 4)
    before = _Drawing()
    below = before.add(_short(base), _kind(base))
    for index in range(shown):
        more = f" (and {count - shown} more)" if index == shown - 1 and count > shown else ""
        before.edge(before.add(f"{_short(node)}{more}", "copy"), below)
    after = _Drawing()
    joined = after.add("one buffer for all slices", "op")
    after.edge(joined, after.add(_short(base), _kind(base)))
    return GraphExcerpt(before.graph(), after.graph())


class _Drawing:
    """A graph in the making; ids are numbers in order of appearance."""

    def __init__(self) -> None:
        self._nodes: list[GraphNode] = []
        self._edges: list[tuple[str, str]] = []
        self._ids: dict[int, str] = {}

    def add(self, name: str, kind: NodeKind) -> str:
        self._nodes.append(GraphNode(str(len(self._nodes)), name, kind))
        return self._nodes[-1].id

    def edge(self, above: str, below: str) -> None:
        if (above, below) not in self._edges:
            self._edges.append((above, below))

    def node(self, node: Node, levels: int) -> str:
        """Draw ``node`` and what lies below it; what is there already is not drawn again."""
        # Two Python objects for one node are equal in hash only if they are the same object, and
        # they are: PyTorch keeps one for as long as it is referred to, which `node` does.
        known = self._ids.get(hash(node))
        if known is not None:
            return known
        made = self._ids[hash(node)] = self.add(_short(node.name()), _kind(node.name()))
        self.below(made, node, levels)
        return made

    def below(self, above: str, node: Node, levels: int) -> None:
        inputs = [below for below, _ in node.next_functions if below is not None]
        if not inputs:
            return
        if levels == 0 or len(self._nodes) > 24:
            self.edge(above, self.add("…", "cut"))
            return
        for below in inputs:
            self.edge(above, self.node(below, levels - 1))

    def graph(self) -> Graph:
        return Graph(tuple(self._nodes), tuple(self._edges))


def _find(roots: Sequence[Tensor], sequence_number: int) -> tuple[Node, bool] | None:
    found: Node | None = None
    below_strided: set[int] = set()
    for node in graphs.nodes(*roots):
        name = node.name()
        if name.endswith("CopySlices") and node._sequence_nr() == sequence_number:
            found = node
        elif name == graphs.AS_STRIDED:
            below = node.next_functions[0][0]
            if below is not None and below.name().endswith("CopySlices"):
                below_strided.add(below._sequence_nr())
    return None if found is None else (found, sequence_number in below_strided)


def _kind(name: str) -> NodeKind:
    short = _short(name)
    if short == "AccumulateGrad":
        return "leaf"
    if short in ("CopySlices", "AsStridedBackward0"):
        return "copy"
    return "view" if short.removeprefix("Unsafe").startswith(_VIEWS) else "op"


def _short(name: str) -> str:
    return name.rpartition("::")[2]
