from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from noalias.audit.finding import Graph, GraphNode
from noalias.audit.report.layout import GAP_X, place


def graph(names: str, *edges: str) -> Graph:
    return Graph(tuple(GraphNode(n, n) for n in names), tuple((e[0], e[1]) for e in edges))


def widths(graph: Graph) -> dict[str, float]:
    return {node.id: 40.0 + 5 * i for i, node in enumerate(graph.nodes)}


def test_a_node_lies_below_all_that_flow_into_it() -> None:
    diamond = graph("abcd", "ab", "ac", "bd", "cd", "ad")
    placed = place(diamond, widths(diamond))
    assert placed.layer == {"a": 0, "b": 1, "c": 1, "d": 2}


def test_an_edge_over_several_layers_is_led_around_the_nodes_between() -> None:
    long = graph("abc", "ab", "bc", "ac")
    placed = place(long, widths(long))
    (_, bend, _) = placed.paths[2]
    assert bend[1] == 1
    assert abs(bend[0] - placed.x["b"]) >= widths(long)["b"] / 2


def test_a_chain_is_straight() -> None:
    chain = graph("abc", "ab", "bc")
    placed = place(chain, widths(chain))
    assert len(set(placed.x.values())) == 1


def test_an_empty_graph_has_no_size() -> None:
    placed = place(Graph((), ()), {})
    assert (placed.width, placed.layers) == (0.0, 0)


edges = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh")), max_size=16)


@given(edges)
def test_nodes_of_a_layer_never_overlap_even_in_graphs_with_cycles(
    drawn: list[tuple[str, str]],
) -> None:
    any_graph = Graph(tuple(GraphNode(n, n) for n in "abcdefgh"), tuple(drawn))
    width = widths(any_graph)
    placed = place(any_graph, width)
    for layer in set(placed.layer.values()):
        row = sorted((n for n in width if placed.layer[n] == layer), key=placed.x.__getitem__)
        for left, right in itertools.pairwise(row):
            apart = placed.x[right] - placed.x[left]
            assert apart >= (width[left] + width[right]) / 2 + GAP_X - 1e-6
    assert all(x - width[n] / 2 >= -1e-6 for n, x in placed.x.items() if n in width)
    assert len(placed.paths) == len(drawn)


acyclic = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda e: e[0] < e[1]), max_size=16
)


@given(acyclic)
def test_every_edge_of_an_acyclic_graph_points_down(drawn: list[tuple[int, int]]) -> None:
    names = "abcdefgh"
    made = Graph(
        tuple(GraphNode(n, n) for n in names), tuple((names[a], names[b]) for a, b in drawn)
    )
    placed = place(made, widths(made))
    assert all(placed.layer[a] < placed.layer[b] for a, b in made.edges)
