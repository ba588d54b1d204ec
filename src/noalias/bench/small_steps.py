"""Two whole training steps, so small that what is added to each call shows: the audit's price."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from noalias.bench.measure import Step


class _Block(nn.Module):
    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.norm(self.conv(x)))
        return out


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm_1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(query, key, value)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


def convolutions() -> Step:
    """Four blocks of convolution, batch norm and ReLU in place, on 4 images of 16 x 16: nothing of
    it pays for an alias."""
    width = 16
    blocks = [_Block(3 if number == 0 else width, width) for number in range(4)]
    net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    return _training(net, torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,)))


def transformer() -> Step:
    """Three layers of 32 channels with 4 heads, on 4 sequences of 16 tokens."""
    net = nn.Sequential(*(_Layer(32, 4) for _ in range(3)), nn.Linear(32, 50), nn.Flatten(0, 1))
    return _training(net, torch.randn(4, 16, 32), torch.randint(0, 50, (64,)))


def _training(net: nn.Module, x: Tensor, target: Tensor) -> Step:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), target).backward()
        optimizer.step()

    return step
