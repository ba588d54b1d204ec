"""The helper that lists what autograd has recorded."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from noalias import graph


def test_names_counts_every_node_once_without_its_namespace() -> None:
    x = torch.randn(2, 3, requires_grad=True)
    y = x.sin()
    assert graph.names(y + y) == {"AddBackward0": 1, "SinBackward0": 1, "AccumulateGrad": 1}


def test_a_tensor_without_history_adds_nothing() -> None:
    assert graph.names(torch.ones(2)) == {}
    assert graph.names() == {}
    assert graph.names(torch.ones(2, requires_grad=True)) == {}


def test_several_roots_share_what_is_behind_them() -> None:
    x = torch.randn(2, requires_grad=True)
    y = x.sin()
    assert graph.names(y.cos(), y.exp())["SinBackward0"] == 1


def test_nodes_come_before_their_inputs_and_may_be_roots_themselves() -> None:
    x = torch.randn(2, requires_grad=True)
    y = x.sin().cos()
    names = [node.name().rpartition("::")[2] for node in graph.nodes(y)]
    assert names == ["CosBackward0", "SinBackward0", "AccumulateGrad"]
    assert list(graph.nodes(y.grad_fn)) == list(graph.nodes(y))


def test_find_takes_a_name_with_or_without_its_namespace() -> None:
    x = torch.randn(2, requires_grad=True)
    y = (x * x).sum()
    for name in ("AccumulateGrad", "torch::autograd::AccumulateGrad"):
        (found,) = graph.find(y, name=name)
        assert found.variable is x
    assert graph.find(y, name="CopySlices") == []


def test_an_in_place_write_to_a_view_is_found() -> None:
    base = torch.randn(4, requires_grad=True) * 1.0
    view = base.view(2, 2)
    assert not graph.has_copy_slices(view)
    view.mul_(2)
    assert graph.has_copy_slices(view)
    assert graph.has_copy_slices(base)


def test_a_regenerated_view_is_found() -> None:
    base = torch.randn(4, requires_grad=True) * 1.0
    view = base.as_strided((2, 2), (2, 1))
    assert graph.has_as_strided(view)
    assert not graph.has_as_strided(base)


def test_a_long_graph_needs_no_recursion() -> None:
    y = torch.randn(1, requires_grad=True)
    for _ in range(5000):
        y = F.relu(y)
    assert graph.names(y)["ReluBackward0"] == 5000


@pytest.mark.parametrize("root", [1, None, "x"])
def test_anything_else_raises_type_error(root: object) -> None:
    with pytest.raises(TypeError, match="expected a tensor or a node, not"):
        graph.names(root)
