"""A program with one line for each kind of finding, for the recorder's tests.

A comment `# -> CODE operator module` ends each line that must be found; no other may be.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.LeakyReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(F.instance_norm(x))  # -> NA101 aten::leaky_relu_ blocks.0.act
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.cell = nn.GRUCell(8, 8)
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks[0](x)
        base = x * 2
        view = base.view(2, 4, -1)
        view.mul_(3)  # -> NA102 aten::mul_ Net
        y = torch.einsum("bcn,bdn->bcd", view, view)
        y.add_(1)  # -> NA101 aten::add_ Net
        z = (y * 2).view(2, -1)
        z.register_hook(self.kept.append)
        z.mul_(2)  # -> NA301 aten::mul_ Net
        h = z[:, :8]
        out = torch.zeros(40, 2, 8)
        out[0, 0] = 1.0  # one update is no loop
        for t in range(40):
            h = self.cell(h, h)
            out[t] = h  # -> NA201 aten::copy_ Net
        reads = torch.stack([out[t].sum() for t in range(40)])  # -> NA202 aten::select Net
        plain = reads * 2
        plain.add_(1)  # no view: nothing to pay
        return plain.sum() + base.mean()


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(2, 4, 8, 8)
    for _ in range(3):
        optimizer.zero_grad()
        net(x.clone().requires_grad_()).backward()
        optimizer.step()
    assert not net.kept, "stock PyTorch drops the hook"

    scores = torch.randn(4, requires_grad=True)
    weights = scores.exp()
    weights.mul_(10)  # -> NA303 aten::mul_
    try:
        weights.sum().backward()
    except RuntimeError:
        pass
    else:
        raise AssertionError("PyTorch accepted the overwritten value")

    part = (scores * 2).unbind(0)[0]
    try:
        part.mul_(2)  # -> NA302 aten::mul_
    except RuntimeError:
        pass
    else:
        raise AssertionError("PyTorch accepted the write")


if __name__ == "__main__":
    main()
