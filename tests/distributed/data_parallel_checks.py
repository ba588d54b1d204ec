"""What every rank runs for test_data_parallel.py: FSDP2 and DDP on modules that write in place."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import noalias
from noalias import graph
from tests.distributed.models import whole_gradients
from tests.distributed.support import Answer, Check, run

BATCH, RANKS = 8, 4


class Writes(nn.Module):
    """Linear, instance norm and attention, each of whose outputs is written to in place."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(12, 16)
        self.norm = nn.InstanceNorm1d(16, affine=True)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.down = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.up(x), inplace=True)
        hidden = F.leaky_relu(self.norm(hidden.transpose(1, 2)), inplace=True).transpose(1, 2)
        attended, _ = self.attention(hidden, hidden, hidden, need_weights=False)
        attended += hidden
        return self.down(attended).mul_(2)


class Checkpointed(nn.Module):
    """``inner``, computed again in backward."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return output


def _model(*, recompute: bool) -> nn.Module:
    torch.manual_seed(0)
    return Checkpointed(Writes()) if recompute else Writes()


def _batch() -> Tensor:
    return torch.randn(BATCH, 6, 12, generator=torch.Generator().manual_seed(1))


def _mine() -> Tensor:
    return _batch().chunk(RANKS)[dist.get_rank()]


def _alone() -> list[Tensor]:
    """The gradients of one process on the whole batch, stock PyTorch."""
    model = _model(recompute=False)
    model(_batch()).square().mean().backward()
    return whole_gradients(model)


def _sharded(*, recompute: bool) -> tuple[list[Tensor], int, list[str]]:
    """One step under FSDP2: gradients, pre-backward hooks that ran, warnings about views."""
    model = _model(recompute=recompute)
    mesh = init_device_mesh("cpu", (RANKS,))
    inner = model.inner if isinstance(model, Checkpointed) else model
    for part in (inner.up, inner.norm, inner.attention, inner.down):
        fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = type(fully_shard.state(inner.up))
    ran: list[object] = []
    stock = state._pre_backward

    def count(self: object, gradient: Tensor) -> Tensor:
        ran.append(self)
        return stock(self, gradient)

    state._pre_backward = count
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(_mine()).square().mean().backward()
    finally:
        state._pre_backward = stock
    about_views = [str(w.message) for w in caught if "returned a view tensor" in str(w.message)]
    return whole_gradients(model), len(set(map(id, ran))), about_views


def _compared(*, recompute: bool) -> Answer:
    expected = _alone()
    gradients, ran, about_views = _sharded(recompute=recompute)
    return {
        "close": [
            torch.allclose(a, b, atol=1e-5) for a, b in zip(gradients, expected, strict=True)
        ],
        "pre_backward": ran,
        "warnings": about_views,
    }


def fsdp_cured() -> Answer:
    with noalias.enabled():
        return _compared(recompute=False)


def fsdp_cured_checkpointed() -> Answer:
    with noalias.enabled():
        return _compared(recompute=True)


def fsdp_stock() -> Answer:
    """Without the cures."""
    return _compared(recompute=False)


def _replicated(*, recompute: bool) -> tuple[list[Tensor], int]:
    """The gradients of one step under DDP, and the rebased histories (``CopySlices``) in it."""
    model = DistributedDataParallel(_model(recompute=recompute))
    loss = model(_mine()).square().mean()
    rebased = graph.names(loss)["CopySlices"]
    loss.backward()
    return whole_gradients(model), rebased


def ddp() -> Answer:
    answer: Answer = {}
    for name, recompute in (("plain", False), ("checkpointed", True)):
        stock, rebased = _replicated(recompute=recompute)
        with noalias.enabled():
            cured, left = _replicated(recompute=recompute)
        answer[f"{name} rebased"] = (rebased, left)
        pairs = zip(stock, cured, strict=True)
        answer[name] = all(torch.equal(a, b) for a, b in pairs)
        expected = zip(cured, _alone(), strict=True)
        answer[f"{name} alone"] = all(torch.allclose(a, b, atol=1e-5) for a, b in expected)
    return answer


def everything() -> dict[str, Answer]:
    """All checks, one after the other."""
    return run(CHECKS)


def without_cures() -> dict[str, Answer]:
    """On ranks of its own: what is left of FSDP2's state after its failure is nobody's concern."""
    return run([fsdp_stock])


CHECKS: tuple[Check, ...] = (ddp, fsdp_cured, fsdp_cured_checkpointed)
