"""Training steps in which every cure has something to do, for the lifetime and thread tests."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from noalias.ownership.observers import live_tensors

ROOT = Path(__file__).parents[2]
STEPS = 4
WIDTH = 6


def parameters(seed: int = 0) -> list[Tensor]:
    """A weight and a bias, leaves."""
    made = torch.Generator().manual_seed(seed)
    weight = torch.randn(WIDTH, WIDTH, generator=made, requires_grad=True)
    return [weight, torch.randn(WIDTH, generator=made, requires_grad=True)]


def forward(weight: Tensor, bias: Tensor, named: dict[str, Tensor] | None = None) -> Tensor:
    """The loss of one step, of whose tensors those in ``named`` stay alive.

    A linear whose result is written to, a hidden base, parts of a split, slices of a buffer filled
    and read, and elementwise functions whose gradients are nobody else's.
    """
    named = {} if named is None else named
    x = torch.arange(2.0 * STEPS * WIDTH).view(2, STEPS, WIDTH) / 50
    hidden = named["linear"] = F.relu_(F.linear(x, weight, bias))
    view = named["view"] = (hidden * 2).view(2 * STEPS, WIDTH)
    view.mul_(3).register_hook(lambda gradient: gradient * 0.5)
    first, second = (view * 1).view(STEPS, 2 * WIDTH).split(WIDTH, dim=1)
    named["part"] = first
    buffer = named["buffer"] = torch.zeros(STEPS, 2, WIDTH)
    for t in range(STEPS):
        buffer[t] = view[2 * t : 2 * t + 2].tanh()
    total = torch.zeros(2, WIDTH)
    for t in range(STEPS):
        total = total + F.gelu(buffer[t]) * buffer[t]
    named["total"] = total
    return named.setdefault("loss", (total.sum() + first.sum() + second.relu().sum()) / 100)


def write_parts(weight: Tensor) -> None:
    """Write to a part of a split, which stock refuses and the cure ``hidden_base`` allows."""
    first, second = (weight * 1).split(WIDTH // 2)
    (first.sigmoid_().sum() + second.sum()).backward()
    weight.grad = None


def step(weight: Tensor, bias: Tensor) -> None:
    """Forward, backward and a step of gradient descent."""
    forward(weight, bias).backward()
    with torch.no_grad():
        for parameter in (weight, bias):
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=0.01)
            parameter.grad = None


def gradients(seed: int = 0) -> list[Tensor]:
    """What backward leaves in fresh parameters."""
    leaves = parameters(seed)
    forward(*leaves).backward()
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def counts(tensor: Tensor) -> tuple[int, int, int]:
    """References that Python holds, and owners that C++ counts: of the tensor, of its storage."""
    storage = tensor.untyped_storage()
    owners: int = tensor._use_count()  # type: ignore[attr-defined]
    shared: int = torch._C._storage_Use_Count(storage._cdata)  # type: ignore[attr-defined]
    return sys.getrefcount(tensor), owners, shared


def live() -> int:
    """How many tensors Python has an object for, cycles collected; not a compiler's fake ones,
    which come and go with its caches."""
    gc.collect()
    return sum(not isinstance(value, FakeTensor) for value in live_tensors())


def run(code: str, timeout: float = 300, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python on some code, with these helpers as ``training``, and with SIGINT as at a prompt.

    A job that a shell started in the background ignores SIGINT, and so would its children.
    """
    prelude = """\
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import torch
        torch.set_num_threads(1)
        import noalias
        from tests.ownership import training
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        env=os.environ | {"PYTHONPATH": path} | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
