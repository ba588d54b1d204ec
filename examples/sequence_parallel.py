"""Train a small transformer with batch and sequence sharded, and no gather in any linear layer.

    torchrun --standalone --nproc-per-node 4 examples/sequence_parallel.py

Four CPU ranks form a 2 x 2 mesh: the batch of 3 is sharded over two ranks that do not divide it,
the sequence over the other two. Keys and values are gathered over the sequence, by hand, because
attention needs them whole; ``nn.Linear`` needs nothing, forward or backward. Rank 0 trains the same
model alone and compares the losses. The exit status is 1 if they differ or if linear communicated.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torch.distributed.tensor.debug import CommDebugMode

import noalias

BATCH, LENGTH, WIDTH, HEADS, VOCABULARY, LAYERS = 3, 16, 32, 4, 11, 2
TOKENS = (Shard(0), Shard(1))  # batch over the first mesh dimension, sequence over the second


def attend(query: Tensor, key: Tensor, value: Tensor, first: int) -> Tensor:
    """Causal attention of the queries from position ``first`` on to all keys before them."""
    heads = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (query, key, value)]
    positions = torch.arange(first, first + query.shape[1])
    allowed = torch.arange(key.shape[1]) <= positions[:, None]
    mixed = F.scaled_dot_product_attention(*heads, attn_mask=allowed)
    return mixed.transpose(1, 2).flatten(-2)


class Block(nn.Module):
    """Attention and feed-forward, each behind a norm and around a residual connection."""

    gathered = 0  # keys and values brought together in forward, by all blocks of this process

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.norm_feed = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm_attention(x)
        query, key, value = self.query(normed), self.key(normed), self.value(normed)
        x = x + self.out(self.mix(query, key, value))
        return x + self.down(F.gelu(self.up(self.norm_feed(x))))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if not isinstance(query, DTensor):
            return attend(query, key, value, first=0)
        mesh = query.device_mesh
        # Every rank of the sequence adds its own part to the gradient of the whole keys.
        whole = [
            t.redistribute(placements=(Shard(0), Replicate())).to_local(
                grad_placements=(Shard(0), Partial())
            )
            for t in (key, value)
            if isinstance(t, DTensor)
        ]
        Block.gathered += len(whole)
        first = mesh.get_local_rank(1) * (LENGTH // mesh.size(1))
        mixed = attend(query.to_local(grad_placements=TOKENS), whole[0], whole[1], first)
        return DTensor.from_local(
            mixed, mesh, TOKENS, run_check=False, shape=query.shape, stride=query.stride()
        )


def build() -> nn.Module:
    """The same model on every rank."""
    torch.manual_seed(0)
    blocks = [Block() for _ in range(LAYERS)]
    return nn.Sequential(nn.Linear(VOCABULARY, WIDTH), *blocks, nn.Linear(WIDTH, VOCABULARY))


def sentences(step: int) -> Tensor:
    """``[batch, length + 1]`` tokens, each of which follows from the one before it."""
    generator = torch.Generator().manual_seed(step)
    columns = [torch.randint(VOCABULARY, (BATCH,), generator=generator)]
    for _ in range(LENGTH):
        columns.append((2 * columns[-1] + 1) % VOCABULARY)
    return torch.stack(columns, dim=1)


def one_hot(tokens: Tensor) -> Tensor:
    return F.one_hot(tokens, VOCABULARY).float()


def train_alone(steps: int) -> list[float]:
    """One process, plain tensors, PyTorch as it is."""
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        tokens = sentences(step)
        logits = model(one_hot(tokens[:, :-1]))
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_sharded(mesh: DeviceMesh, steps: int) -> tuple[list[float], dict[str, Counter[str]]]:
    """Losses, and the collectives of the last step by phase and kind."""
    model = distribute_module(build(), mesh)  # parameters replicated
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, counted = [], {}
    for step in range(steps):
        tokens = sentences(step)
        x = distribute_tensor(one_hot(tokens[:, :-1]), mesh, TOKENS)
        wanted = distribute_tensor(tokens[:, 1:].contiguous(), mesh, TOKENS).to_local()
        optimizer.zero_grad()
        with CommDebugMode() as forward:
            Block.gathered = 0
            logits = model(x).to_local(grad_placements=TOKENS)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")
        loss = loss / (BATCH * LENGTH)
        with CommDebugMode() as backward:
            loss.backward()
        with CommDebugMode() as gradients:
            for parameter in model.parameters():
                parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item())
        phases = {"forward": forward, "backward": backward, "gradients": gradients}
        counted = {name: kinds(mode) for name, mode in phases.items()}
    return losses, counted


def kinds(mode: CommDebugMode) -> Counter[str]:
    counts = mode.get_comm_counts()
    return Counter({str(kind).rpartition(".")[2]: n for kind, n in counts.items() if n})


def main() -> int:
    """Train both ways, print what happened, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    # CommDebugMode follows modules by hooks, which remark that tokens need no gradient.
    warnings.filterwarnings("ignore", "Full backward hook is firing")
    dist.init_process_group("gloo")
    try:
        noalias.enable("linear")
        losses, counted = train_sharded(init_device_mesh("cpu", (2, 2)), options.steps)
        noalias.disable("linear")
        alone = train_alone(options.steps)
        difference = max(abs(a - b) for a, b in zip(losses, alone, strict=True))
        by_linear = counted["forward"].total() - Block.gathered
        by_linear += counted["backward"].total() - Block.gathered  # their gradients, scattered
        if dist.get_rank() == 0:
            print(f"loss: {losses[0]:.4f} at first, {losses[-1]:.4f} after {options.steps} steps")
            print(f"largest difference from one process: {difference:.1e}")
            for phase, counts in counted.items():
                said = ", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())) or "none"
                print(f"collectives in {phase}: {said}")
            print(f"of these for keys and values: {Block.gathered} forward, as many backward")
            print(f"of these in linear: {by_linear}")
        return 0 if difference < 1e-4 and by_linear == 0 else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
