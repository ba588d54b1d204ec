"""Sparse weights: which gradient they get, and what stands in for the core's products."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

if TYPE_CHECKING:
    from noalias.native.core import Core

LAYOUTS = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)


class _State(threading.local):
    on_pattern = False


_state = _State()


@contextmanager
def sparse_weight_gradients(kind: Literal["dense", "pattern"]) -> Iterator[None]:
    """Choose the gradient that ``noalias.linear`` records for sparse weights, in this thread.

    ``"dense"``, the default and what ``F.linear`` gives: ``[out, in]``, strided. ``"pattern"``: the
    weight's own layout and indices, values of the same shape. That saves ``out * in`` elements
    less the entries, and the product that fills them: a weight of 4096 x 4096 with 1 % of its
    entries gets a gradient of 0.7 MiB of values and 1.3 MiB of indices it shares with the weight,
    not 64 MiB. The entries outside the pattern have gradients too; an optimizer that is to grow
    new ones needs ``"dense"``.

    The choice is made when ``linear`` is called and holds for the backward of that call. PyTorch
    accumulates COO and CSR into ``.grad``, and no CSC, BSR or BSC: for a leaf of one of those
    layouts ask :func:`torch.autograd.grad` for the gradient; ``backward`` raises.

    Raises:
        ValueError: ``kind`` is neither of the two.
    """
    if kind not in ("dense", "pattern"):
        raise ValueError(f"noalias.sparse_weight_gradients: 'dense' or 'pattern', not {kind!r}")
    from noalias.linear import op

    core = op.require_core() if op.load_kernels() else None
    before = _state.on_pattern
    _set(core, kind == "pattern")
    try:
        yield
    finally:
        _set(core, before)


def _set(core: Core | None, on: bool) -> None:
    _state.on_pattern = on
    if core is not None:
        core.set_pattern_gradients(on)


def is_matrix(weight: Tensor) -> bool:
    """Whether ``weight`` is a sparse matrix of scalars: no batch, no dense dimensions."""
    return weight.layout in LAYOUTS and weight.sparse_dim() == 2 and weight.dense_dim() == 0


def densify(weight: Tensor) -> Tensor:
    """``[out, in]`` of any sparse layout -> strided, with the gradient that is chosen now."""
    dense: Tensor = _Densify.apply(weight, _state.on_pattern)  # type: ignore[no-untyped-call]
    return dense


class _Context(torch.autograd.function.FunctionCtx):
    pattern: Tensor | None


class _Densify(torch.autograd.Function):
    """A sparse matrix as a strided one.

    ``Tensor.to_dense`` has a derivative for some of the layouts, and it is never dense.
    """

    @staticmethod
    def forward(ctx: _Context, weight: Tensor, on_pattern: bool) -> Tensor:
        ctx.pattern = weight.detach() if on_pattern else None
        return weight.to_dense()

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        return grad if ctx.pattern is None else on_pattern(grad, ctx.pattern), None

    @staticmethod
    def jvp(ctx: _Context, tangent: Tensor, _: None) -> Tensor:
        return tangent.to_dense()


def on_pattern(dense: Tensor, pattern: Tensor) -> Tensor:
    """The entries of ``dense`` ``[out, in]`` where ``pattern`` has some, in its layout."""
    if pattern.layout is torch.sparse_coo:
        pattern = pattern.coalesce()
        values = dense[tuple(pattern.indices())]
        return torch.sparse_coo_tensor(
            pattern.indices(), values, pattern.shape, is_coalesced=True, check_invariants=False
        )
    by_row = pattern.layout in (torch.sparse_csr, torch.sparse_bsr)
    compressed = pattern.crow_indices() if by_row else pattern.ccol_indices()
    plain = pattern.col_indices() if by_row else pattern.row_indices()
    counts = compressed.diff()
    outer = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    rows, columns = (outer, plain) if by_row else (plain, outer)
    height, width = pattern.values().shape[1:] if pattern.values().dim() == 3 else (1, 1)
    blocks = dense.reshape(dense.shape[0] // height, height, dense.shape[1] // width, width)
    values = blocks.permute(0, 2, 1, 3)[rows, columns].reshape(pattern.values().shape)
    return torch.sparse_compressed_tensor(
        compressed, plain, values, pattern.shape, layout=pattern.layout, check_invariants=False
    )
