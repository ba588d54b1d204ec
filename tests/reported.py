"""What people's own code did, after public reports: each case is somebody's few lines, with fresh
inputs.

A case runs one forward and backward with plain PyTorch calls and returns its output (None where it
has to fail) and every gradient a user would look at. It knows nothing of noalias, so the same
function serves as the reference on stock PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Outcome(NamedTuple):
    """``output`` still carries its graph; ``gradients`` are those of inputs and parameters, then
    what hooks saw.
    """

    output: Tensor | None
    gradients: list[Tensor | None]


Case = Callable[[], Outcome]


def _outcome(
    output: Tensor, x: Tensor, *modules: nn.Module, seen: tuple[Tensor, ...] = ()
) -> Outcome:
    parameters = [parameter.grad for module in modules for parameter in module.parameters()]
    return Outcome(output, [x.grad, *parameters, *seen])


def ffn_inplace_relu() -> Outcome:
    """The feed-forward part of a detector: Linear and ReLU(inplace=True) on (batch, queries,
    channels).
    """
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(inplace=True), nn.Linear(64, 32))
    x = torch.randn(2, 10, 32, requires_grad=True)
    y = net(x)
    y.sum().backward()
    return _outcome(y, x, net)


def nnunet_block() -> Outcome:
    """Conv3d, InstanceNorm3d, LeakyReLU(inplace=True): the block of medical segmentation."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True), nn.LeakyReLU(inplace=True)
    )
    x = torch.randn(1, 1, 8, 8, 8, requires_grad=True)
    y = net(x)
    y.square().sum().backward()
    return _outcome(y, x, net)


def sliced_logits_temperature() -> Outcome:
    """Reinforcement learning of language models: drop the last position, divide by the temperature
    in place.
    """
    torch.manual_seed(0)
    head = nn.Linear(16, 50, bias=False)
    x = torch.randn(2, 9, 16, requires_grad=True)
    logits = head(x)
    logits = logits[:, :-1]
    logits.div_(0.7)
    log_probabilities = logits.log_softmax(-1)
    log_probabilities.sum().backward()
    return _outcome(log_probabilities, x, head)


def decoder_fills_outputs(steps: int = 64) -> Outcome:
    """The decoder of every sequence-to-sequence tutorial: ``outputs[t] = h`` in a loop, one loss
    over all of it.
    """
    torch.manual_seed(0)
    cell = nn.GRUCell(8, 16)
    x = torch.randn(steps, 4, 8, requires_grad=True)
    source = x * 1.0
    h, outputs = torch.zeros(4, 16), torch.zeros(steps, 4, 16)
    for t in range(steps):
        h = cell(source[t], h)
        outputs[t] = h
    outputs.square().sum().backward()
    return _outcome(outputs, x, cell)


def full_backward_hook_then_inplace() -> Outcome:
    """Attribution and second-order tools: a full backward hook on a layer whose activation is in
    place.
    """
    torch.manual_seed(0)
    layer, seen = nn.Linear(8, 4), list[Tensor]()
    layer.register_full_backward_hook(
        lambda module, grad_in, grad_out: seen.append(grad_out[0].clone())
    )
    x = torch.randn(3, 8, requires_grad=True)
    y = F.relu(layer(x), inplace=True)
    y.sum().backward()
    return _outcome(y, x, layer, seen=tuple(seen))


def hook_set_before_inplace() -> Outcome:
    """A hook on a layer's output, then an in-place operator on it."""
    torch.manual_seed(0)
    layer, seen = nn.Linear(8, 4), list[Tensor]()
    x = torch.randn(2, 3, 8, requires_grad=True)
    y = layer(x)
    y.register_hook(lambda grad: seen.append(grad.clone()))
    y.mul_(2)
    y.sum().backward()
    return _outcome(y, x, layer, seen=tuple(seen))


def observable_base_is_kept() -> Outcome:
    """Base and view both have a name, and both go into the loss."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 4)
    x = torch.randn(2, 3, 8, requires_grad=True)
    base = layer(x)
    view = base.view(-1, 4)
    view[:3].mul_(3)
    (base.sum() + view.square().sum()).backward()
    return _outcome(base, x, layer)


def saved_output_still_raises() -> Outcome:
    """``exp`` saved its result; a view of that result is overwritten before backward."""
    x = torch.randn(4, requires_grad=True)
    view = x.exp().view(2, 2)
    view.mul_(10)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        view.sum().backward()
    return Outcome(None, [x.grad])
