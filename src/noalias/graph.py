"""What autograd has recorded: the nodes behind some tensors, by name.

For tests that say what a graph must look like: that an in-place operator left no ``CopySlices``,
or that a layer is one node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import cast

from torch import Tensor
from torch.autograd.graph import Node

COPY_SLICES = "CopySlices"
AS_STRIDED = "AsStridedBackward0"


def nodes(*roots: Tensor | Node) -> Iterator[Node]:
    """Every node behind ``roots`` once: depth first, a node before its inputs.

    Args:
        roots: tensors (any shape; one without history adds nothing) or nodes.

    Raises:
        TypeError: a root that is neither.
    """
    stack = [node for root in reversed(roots) if (node := _node_of(root)) is not None]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        stack += [below for below, _ in reversed(node.next_functions) if below is not None]


def names(*roots: Tensor | Node) -> Counter[str]:
    """How many nodes of each name, as ``Node.name()`` spells it without its C++ namespace.

    For leaves ``x`` and ``w``, ``names(F.relu(x @ w))`` counts 2 ``AccumulateGrad``, 1
    ``ReluBackward0`` and 1 ``MmBackward0``.

    Raises:
        TypeError: a root that is neither a tensor nor a node.
    """
    return Counter(_short(node) for node in nodes(*roots))


def find(*roots: Tensor | Node, name: str) -> list[Node]:
    """The nodes of one name, given with or without its C++ namespace.

    Raises:
        TypeError: a root that is neither a tensor nor a node.
    """
    return [node for node in nodes(*roots) if name in (_short(node), node.name())]


def has_copy_slices(*roots: Tensor | Node) -> bool:
    """Whether an in-place operator on a view has rewritten the history of its base.

    Raises:
        TypeError: a root that is neither a tensor nor a node.
    """
    return any(_short(node) == COPY_SLICES for node in nodes(*roots))


def has_as_strided(*roots: Tensor | Node) -> bool:
    """Whether a view was regenerated from its base, as happens after its base was written to.

    Raises:
        TypeError: a root that is neither a tensor nor a node.
    """
    return any(_short(node) == AS_STRIDED for node in nodes(*roots))


def _short(node: Node) -> str:
    return node.name().rpartition("::")[2]


def _node_of(root: object) -> Node | None:
    if isinstance(root, Tensor):
        return root.grad_fn
    # PyTorch asks for a node's class by name, and from 2.14 on has a LinearBackward0 of its own.
    if isinstance(root, Node) or hasattr(root, "next_functions"):
        return cast(Node, root)
    raise TypeError(f"noalias.graph: expected a tensor or a node, not {type(root).__name__}")
