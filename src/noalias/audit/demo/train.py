"""What ``noalias audit --demo`` audits: a small network with every kind of finding in it.

An ordinary program: it knows nothing of noalias, and runs by itself.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Convolution, instance norm, activation in place: the block of many segmentation networks."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.InstanceNorm2d(channels)
        self.act = nn.LeakyReLU(0.01, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        out: Tensor = self.act(x)  # NA101: instance_norm returned a view of a temporary
        return out


class Flatten(nn.Module):
    """Pools, and returns a view of what it made."""

    def forward(self, x: Tensor) -> Tensor:
        return (F.avg_pool2d(x, 8) * 0.1).flatten(2)  # NA401: the product is a temporary


class Decoder(nn.Module):
    """A recurrent cell over the positions, written as loops."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(features, features)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], x.shape[2])
        out = x.new_zeros(x.shape)
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)  # NA202: one read for each position
            out[t] = h  # NA201: one update for each position
        return out


class Network(nn.Module):
    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList(Block(channels) for _ in range(2))
        self.flatten = Flatten()
        self.decoder = Decoder(channels)
        self.norms: list[Tensor] = []

    def forward(self, image: Tensor) -> Tensor:
        x = self.stem(image)
        for block in self.blocks:
            x = block(x)
        x = self.flatten(x)

        scaled = x * 0.5
        rows = scaled.view(-1, x.shape[-1])
        rows.sub_(0.1)  # NA102: the name `scaled` still sees the base
        x = x + scaled

        attention = torch.einsum("bcn,bdn->bcd", x, x)
        attention.register_hook(lambda gradient: self.norms.append(gradient.norm()))
        attention.div_(x.shape[-1])  # NA301: the hook above never runs

        sequence = (attention @ x).permute(2, 0, 1).contiguous()
        out: Tensor = self.decoder(sequence)
        return out


def main(steps: int = 40) -> None:
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    image = torch.randn(2, 3, 64, 64)
    for _ in range(steps):
        optimizer.zero_grad()
        network(image).square().mean().backward()
        optimizer.step()

    first = (image.clone().requires_grad_() * 2).unbind(0)[0]
    try:
        first.mul_(2)  # NA302: one of several views that unbind returned
    except RuntimeError as error:
        print(f"(the demo provokes NA302) {str(error)[:52]}…")

    scores = torch.randn(4, requires_grad=True)
    weights = scores.exp()
    weights.mul_(10)  # NA303: exp needs the value it returned
    try:
        weights.sum().backward()
    except RuntimeError as error:
        print(f"(the demo provokes NA303) {str(error)[:72]}…")


if __name__ == "__main__":
    main()
