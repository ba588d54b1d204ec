"""What the checks train, and what they compare of it."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


class Block(nn.Module):
    """Two layers behind a norm, as ``parallelize_module`` splits them: ``[*, 12]`` to itself."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 16)
        self.down = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.relu(self.up(self.norm(x))))


def whole_gradients(module: nn.Module) -> list[Tensor]:
    """Every parameter's gradient, of all ranks together where it is distributed."""
    found = []
    for parameter in module.parameters():
        gradient = parameter.grad
        assert gradient is not None
        found.append(gradient.full_tensor() if isinstance(gradient, DTensor) else gradient)
    return found
