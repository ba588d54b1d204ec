"""The program that test_torchrun.py starts with torchrun: a training step, then a bad shape.

Every rank writes what it saw to ``<folder>/<rank>.json``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import noalias
from noalias import native


def error_of(call: Callable[[Tensor, Tensor], Tensor], *operands: Tensor) -> str:
    try:
        call(*operands)
    except RuntimeError as error:
        return str(error)
    return "no error"


def main(folder: Path) -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with noalias.enabled():
        x = distribute_tensor(torch.ones(5, 3, 4), mesh, [Shard(0)])
        # Sharded as the batch is: a good shape of this placement needs a collective.
        bad = distribute_tensor(torch.ones(6, 3), mesh, [Shard(0)])
        weight = distribute_tensor(torch.ones(6, 4), mesh, [Replicate()])
        total = F.linear(x, weight).full_tensor().sum().item()
        # PyTorch's own error, and that of noalias.linear.
        messages = [error_of(call, x, bad) for call in (F.linear, noalias.linear)]
    dist.barrier()  # no rank was left in a collective
    seen = {"library": native.load().__file__, "sum": total, "messages": messages}
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(seen), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
