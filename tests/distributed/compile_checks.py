"""What every rank runs for test_compile.py: a training step of parallel styles, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import noalias
from tests.distributed.models import Block, whole_gradients
from tests.distributed.support import Answer, run

WAYS = ("stock", "converted", "cured")


def _block() -> nn.Module:
    torch.manual_seed(0)
    return Block()


def _parallel(*, local_output: bool) -> nn.Module:
    """The styles as everybody writes them (local tensors in between), or DTensors throughout."""
    sequence = Shard(1)
    plan = {
        "norm": SequenceParallel(use_local_output=local_output),
        "up": ColwiseParallel(input_layouts=sequence, use_local_output=local_output),
        "down": RowwiseParallel(output_layouts=sequence, use_local_output=local_output),
    }
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return parallelize_module(_block(), mesh, plan)


@contextmanager
def _way(name: str, module: nn.Module) -> Iterator[None]:
    if name == "converted":
        noalias.convert(module)
    if name != "cured":
        yield
        return
    with noalias.enabled("linear"):
        yield


def _step(way: str, backend: str | None, *, local_output: bool) -> tuple[float, list[Tensor]]:
    """The loss over all ranks and the gradients, eager if there is no ``backend``."""
    torch._dynamo.reset()
    module = _parallel(local_output=local_output)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    placed = distribute_tensor(_whole(), mesh, [Shard(1)])
    x = placed.to_local() if local_output else placed
    with _way(way, module):
        forward: Callable[[Tensor], Tensor] = module
        if backend is not None:
            forward = torch.compile(module, backend=backend, fullgraph=True)
        loss = forward(x).square().sum()
        loss.backward()
    total = loss.full_tensor() if isinstance(loss, DTensor) else loss.detach().clone()
    if local_output:
        dist.all_reduce(total)
    return total.item(), whole_gradients(module)


def _whole() -> Tensor:
    return torch.randn(3, 8, 12, generator=torch.Generator().manual_seed(1))


def _alone() -> tuple[float, list[Tensor]]:
    module = _block()
    loss = module(_whole()).square().sum()
    loss.backward()
    return loss.item(), whole_gradients(module)


def _difference(a: tuple[float, list[Tensor]], b: tuple[float, list[Tensor]]) -> float:
    """The largest, each tensor's relative to its largest value."""
    loss = abs(a[0] - b[0]) / abs(b[0])
    pairs = zip(a[1], b[1], strict=True)
    return max(loss, *(((x - y).abs().max() / y.abs().max()).item() for x, y in pairs))


def _compared(backend: str) -> Answer:
    answer: Answer = {}
    alone = _alone()
    for way in WAYS:
        for between, local_output in (("local", True), ("placed", False)):
            compiled = _step(way, backend, local_output=local_output)
            eager = _step(way, None, local_output=local_output)
            answer[f"{way} {between}"] = {
                "eager": _difference(compiled, eager),
                "alone": _difference(compiled, alone),
            }
    return answer


def aot_eager() -> Answer:
    return _compared("aot_eager")


def inductor() -> Answer:
    return _compared("inductor")


def on_four() -> dict[str, Answer]:
    return run([aot_eager])


def on_two() -> dict[str, Answer]:
    return run([aot_eager, inductor])


def on_two_again() -> dict[str, Answer]:
    """With what :func:`on_two` left in the compiler's cache."""
    return run([inductor])
