"""Small programs whose in-place operator meets a view of a base that nobody can see."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from noalias.bench.compare import Built, Program

Forward = Callable[[], torch.Tensor]


def _program(
    name: str, make: Callable[[torch.device], tuple[Forward, list[torch.Tensor]]]
) -> Program:
    def build(device: torch.device) -> Built:
        torch.manual_seed(0)
        forward, leaves = make(device)
        return Built(lambda: forward().sum(), leaves)

    return Program(name, build)


def _leaf(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device).requires_grad_()


def _linear_relu(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight, bias = _leaf(device, 64, 256, 64), _leaf(device, 64, 64), _leaf(device, 64)
    return lambda: F.linear(x, weight, bias).relu_(), [x, weight, bias]


def _instance_norm(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight, bias = _leaf(device, 2, 16, 32, 32, 32), _leaf(device, 16), _leaf(device, 16)
    return (
        lambda: F.leaky_relu_(F.instance_norm(x, weight=weight, bias=bias)),
        [x, weight, bias],
    )


def _einsum_bias(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight, bias = _leaf(device, 32, 256, 64), _leaf(device, 8, 64, 16), _leaf(device, 8, 1, 16)
    return lambda: torch.einsum("bte,heo->bhto", x, weight).add_(bias), [x, weight, bias]


def _attention_residual(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    layer = nn.MultiheadAttention(64, 4).to(device)
    x = _leaf(device, 128, 8, 64)

    def forward() -> torch.Tensor:
        y: torch.Tensor = layer(x, x, x)[0]
        y += x
        return y

    return forward, [x, *layer.parameters()]


def _max_pool1d(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x = _leaf(device, 16, 64, 2048)
    # return_indices=False takes another path inside PyTorch without gradients; with them, this one.
    return lambda: F.max_pool1d(x, 2).relu_(), [x]


def _unbatched_conv(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight, bias = _leaf(device, 8, 128, 128), _leaf(device, 16, 8, 3, 3), _leaf(device, 16)
    return lambda: F.conv2d(x, weight, bias, padding=1).relu_(), [x, weight, bias]


def _sliced_logits(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight = _leaf(device, 4, 257, 32), _leaf(device, 2048, 32)

    def forward() -> torch.Tensor:
        logits = F.linear(x, weight)
        logits = logits[:, :-1]
        logits.div_(0.7)
        return logits.logsumexp(-1)

    return forward, [x, weight]


def _own_view(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    x, weight = _leaf(device, 32, 256, 64), _leaf(device, 64, 64)

    def forward() -> torch.Tensor:
        heads = (x @ weight).view(32, 256, 4, 16).transpose(1, 2)
        return heads.mul_(0.25)

    return forward, [x, weight]


def _masked_scores(device: torch.device) -> tuple[Forward, list[torch.Tensor]]:
    query, key = _leaf(device, 32, 128, 32), _leaf(device, 32, 128, 32)
    mask = torch.ones(128, 128, dtype=torch.bool, device=device).triu(1)

    def forward() -> torch.Tensor:
        scores = torch.bmm(query, key.transpose(1, 2)).view(8, 4, 128, 128)
        return scores.masked_fill_(mask, float("-inf")).softmax(-1).square()

    return forward, [query, key]


PROGRAMS: tuple[Program, ...] = (
    _program("linear, 3-D + relu_", _linear_relu),
    _program("instance_norm + leaky_relu_", _instance_norm),
    _program("einsum + add_", _einsum_bias),
    _program("multi_head_attention + residual +=", _attention_residual),
    _program("max_pool1d + relu_", _max_pool1d),
    _program("conv2d, unbatched + relu_", _unbatched_conv),
    _program("logits[:, :-1] + div_", _sliced_logits),
    _program("view + transpose + mul_", _own_view),
    _program("view + masked_fill_", _masked_scores),
)
