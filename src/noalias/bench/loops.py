"""Loops over time: the two that grow quadratically, what one writes by hand, whole programs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from noalias.bench.compare import Built, Program

Loop = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

BATCH, WIDTH = 16, 256


def fill(source: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """`out[t] = state`: each step writes one slice of a tensor made beforehand."""
    out = torch.empty_like(source)
    for t in range(len(source)):
        state = state * 0.999
        out[t] = state
    # A loss whose gradient is dense, as losses' are; that of sum() is one expanded number, which
    # `stack` passes on without a buffer and a slice update has to write out.
    return out.square().sum()


def fill_by_hand(source: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The same by `torch.stack`."""
    states = []
    for _ in range(len(source)):
        state = state * 0.999
        states.append(state)
    return torch.stack(states).square().sum()


def read(source: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """`state = f(state, source[t])`: each step reads one slice."""
    for t in range(len(source)):
        state = state * 0.999 + source[t]
    return state.sum()


def read_by_hand(source: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
    """The same by `unbind`."""
    for part in source.unbind(0):
        state = state * 0.999 + part
    return state.sum()


# Name, loop, its form by hand, name of that form.
LOOPS: tuple[tuple[str, Loop, Loop, str], ...] = (
    ("fill", fill, fill_by_hand, "stack"),
    ("read", read, read_by_hand, "unbind"),
)


def inputs(loop: str, steps: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Source of shape (steps, BATCH, WIDTH) and first state of shape (BATCH, WIDTH), float32.

    Only what the loop differentiates requires grad: the state; for the reading loop the source too.
    """
    make = torch.Generator().manual_seed(0)
    source = torch.randn((steps, BATCH, WIDTH), generator=make).to(device)
    state = torch.randn((BATCH, WIDTH), generator=make).to(device).requires_grad_()
    return (source.requires_grad_() if loop == "read" else source), state


class _AttentionDecoder(nn.Module):
    """A GRU decoder with additive attention, written as the tutorials write it."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.score = nn.Linear(width, 1)
        self.cell = nn.GRUCell(2 * width, width)
        self.out = nn.Linear(width, vocabulary)
        self.vocabulary = vocabulary

    def forward(self, encoded: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        steps, batch = targets.shape
        keys, embedded = self.key(encoded), self.embed(targets)
        hidden = encoded.mean(0)
        outputs = torch.zeros(steps, batch, self.vocabulary, device=encoded.device)
        for t in range(steps):
            energy = self.score(torch.tanh(keys + self.query(hidden)))
            context = (energy.softmax(0) * encoded).sum(0)
            hidden = self.cell(torch.cat((embedded[t], context), -1), hidden)
            outputs[t] = self.out(hidden)
        return outputs


def _decoder(steps: int) -> Callable[[torch.device], Built]:
    def build(device: torch.device) -> Built:
        torch.manual_seed(0)
        net = _AttentionDecoder(64, 256).to(device)
        encoded = torch.randn(24, 16, 64).to(device).requires_grad_()
        targets = torch.randint(256, (steps, 16)).to(device)

        def forward() -> torch.Tensor:
            logits = net(encoded, targets)
            return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

        return Built(forward, [encoded, *net.parameters()])

    return build


def _heat_equation(steps: int) -> Callable[[torch.device], Built]:
    def build(device: torch.device) -> Built:
        torch.manual_seed(0)
        start = torch.randn(8, 512).to(device).requires_grad_()
        forcing = torch.randn(steps, 8, 512).to(device).mul_(1e-3).requires_grad_()
        diffusivity = torch.full((512,), 0.2, device=device, requires_grad=True)

        def forward() -> torch.Tensor:
            trajectory = torch.zeros(steps + 1, 8, 512, device=device)
            trajectory[0] = start
            u = start
            for t in range(steps):
                change = torch.zeros_like(u)
                change[:, 1:-1] = u[:, 2:] - 2 * u[:, 1:-1] + u[:, :-2]
                u = u + diffusivity * change + forcing[t]
                trajectory[t + 1] = u
            return trajectory.square().mean()

        return Built(forward, [start, forcing, diffusivity])

    return build


def programs(steps: int) -> tuple[Program, ...]:
    """Whole programs of `steps` steps."""
    return (
        Program(f"attention decoder, {steps} steps", _decoder(steps)),
        Program(f"1-D heat equation, {steps} steps", _heat_equation(steps)),
    )
