"""Bytes that ``linear`` communicates in a Llama-70B block on 4,096 devices, stock and ours.

``python -m noalias.bench.scale`` runs both functions, forward and backward, as rank 0 of a fake
process group of 4,096: the placements, shapes and collectives are those DTensor and the sharding
rule decide on there; tensors hold no data and nothing is sent. Nothing is estimated on paper.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.utils._python_dispatch import TorchDispatchMode

import noalias
from noalias.bench.placement_cases import placements

MESH = {"data": 32, "context": 16, "tensor": 8}
SEQUENCE = 32_768
HIDDEN, KEYS, FEED_FORWARD = 8192, 1024, 28_672


@dataclass(frozen=True)
class Layer:
    """Linear layers of one block that are placed alike; placements as in ``placement_cases``."""

    name: str
    count: int
    in_features: int
    out_features: int
    input: str
    weight: str


# Sequence parallel gathers the sequence over the tensor dimension in front of the column layers,
# and scatters it behind the row layers. That is no communication of linear's and is not counted.
BLOCK: tuple[Layer, ...] = (
    Layer("query", 1, HIDDEN, HIDDEN, "S0 S1 R", "R R S0"),
    Layer("key, value", 2, HIDDEN, KEYS, "S0 S1 R", "R R S0"),
    Layer("attention output", 1, HIDDEN, HIDDEN, "S0 S1 S2", "R R S1"),
    Layer("gate, up", 2, HIDDEN, FEED_FORWARD, "S0 S1 R", "R R S0"),
    Layer("down", 1, FEED_FORWARD, HIDDEN, "S0 S1 S2", "R R S1"),
)
# The same block without tensor parallel weights: the sequence over both mesh dimensions.
SEQUENCE_ONLY: tuple[Layer, ...] = tuple(
    Layer(layer.name, layer.count, layer.in_features, layer.out_features, "S0 S1 S1", "R R R")
    for layer in BLOCK
)


_SENDS_NOTHING = ("wait_tensor", "_wrap_tensor_autograd")


class Traffic(TorchDispatchMode):
    """Counts the collectives inside the block, and the bytes a device receives in each.

    Rings: an all-gather of ``b`` bytes a device over ``n`` devices brings ``b (n - 1)``, a
    reduce-scatter or an all-to-all of ``b`` bytes ``b (n - 1) / n``, an all-reduce twice that.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = 0.0
        self.kinds: dict[str, int] = {}

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        if any(issubclass(cls, DTensor) for cls in types):
            return NotImplemented  # DTensor first: its local operators come back here
        name = func._schema.name.rpartition("::")[2]
        if func.namespace in ("_c10d_functional", "_dtensor") and name not in _SENDS_NOTHING:
            self._count(name, args)
        return func(*args, **(kwargs or {}))

    def _count(self, name: str, args: tuple[Any, ...]) -> None:
        sent = args[0].numel() * args[0].element_size()
        ranks = dist.get_world_size(dist.distributed_c10d._resolve_process_group(args[-1]))
        share = sent * (ranks - 1) / ranks
        received = {
            "all_gather_into_tensor": sent * (ranks - 1),
            "all_reduce": 2 * share,
            "reduce_scatter_tensor": share,
            "all_to_all_single": share,
            "shard_dim_alltoall": share,
        }
        if name not in received:
            raise NotImplementedError(f"the bytes of {name} are not known here; add its formula")
        self.bytes += received[name]
        self.kinds[name] = self.kinds.get(name, 0) + 1


@dataclass(frozen=True)
class Bill:
    """What one layer communicates on one device; ``message`` if it raises instead."""

    forward: float
    backward: float
    kinds: dict[str, int]
    message: str = ""


def bill(
    function: Callable[[Tensor, Tensor], Tensor], layer: Layer, batch: int, mesh: DeviceMesh
) -> Bill:
    """Run ``function`` for ``layer``, forward and backward."""
    x = _leaf(mesh, (batch, SEQUENCE, layer.in_features), layer.input)
    w = _leaf(mesh, (layer.out_features, layer.in_features), layer.weight)
    forward, backward = Traffic(), Traffic()
    try:
        with forward:
            output = function(x, w)
        assert isinstance(output, DTensor)
        incoming = [Replicate() if isinstance(p, Partial) else p for p in output.placements]
        gradient = _distributed(mesh, tuple(output.shape), incoming)
        with backward:
            output.backward(gradient)
    except RuntimeError as error:
        return Bill(math.nan, math.nan, {}, str(error).strip().splitlines()[0])
    kinds = {
        kind: forward.kinds.get(kind, 0) + backward.kinds.get(kind, 0)
        for kind in {**forward.kinds, **backward.kinds}
    }
    return Bill(forward.bytes, backward.bytes, kinds)


def _leaf(mesh: DeviceMesh, shape: tuple[int, ...], text: str) -> Tensor:
    return _distributed(mesh, shape, placements(text)).requires_grad_()


def _distributed(mesh: DeviceMesh, shape: tuple[int, ...], placed: Sequence[Any]) -> DTensor:
    """A DTensor of global ``shape`` in bfloat16, holding no data: rank 0's part of it."""
    local = list(shape)
    for dim, placement in enumerate(placed):
        if placement.is_shard():
            local[placement.dim] = math.ceil(local[placement.dim] / mesh.size(dim))
    strides = torch.empty(shape, device="meta").stride()
    part = torch.empty(local, dtype=torch.bfloat16, device="meta")
    return DTensor.from_local(
        part, mesh, placed, run_check=False, shape=torch.Size(shape), stride=strides
    )


SCENARIOS: dict[str, tuple[tuple[Layer, ...], int]] = {
    "tensor parallel, batch 64": (BLOCK, 64),
    "tensor parallel, batch 48 (uneven over 32)": (BLOCK, 48),
    "sequence over context and tensor, batch 64": (SEQUENCE_ONLY, 64),
}


Result = dict[str, Any]  # what the JSON holds


def report(before: Result | None = None) -> Iterator[Result]:
    """The result, one layer longer each time; layers that ``before`` has are not run again.

    Raises:
        ValueError: ``before`` is of another PyTorch.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    world = math.prod(MESH.values())
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world)
    try:
        mesh = init_device_mesh("cpu", tuple(MESH.values()), mesh_dim_names=tuple(MESH))
        functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
            "stock": F.linear,
            "noalias": noalias.linear,
        }
        result: Result = before or {
            "torch": torch.__version__,
            "noalias": noalias.__version__,
            "mesh": MESH,
            "sequence": SEQUENCE,
            "scenarios": {},
        }
        if result["torch"] != torch.__version__:
            raise ValueError(
                f"the file has layers of PyTorch {result['torch']}, this is {torch.__version__}: "
                "name another file"
            )
        for name, (layers, batch) in SCENARIOS.items():
            rows = result["scenarios"].setdefault(name, [])
            for layer in layers[len(rows) :]:
                row: dict[str, Any] = {"layer": asdict(layer)}
                for which, call in functions.items():
                    started = time.perf_counter()
                    row[which] = asdict(bill(call, layer, batch, mesh))
                    seconds = time.perf_counter() - started
                    print(f"{name}: {layer.name}: {which}: {seconds:.1f} s", file=sys.stderr)
                rows.append(row)
                yield result
    finally:
        dist.destroy_process_group()


def markdown(result: dict[str, Any]) -> str:
    """One table for each scenario: MiB a device receives in forward and backward of one block."""
    blocks = []
    for name, rows in result["scenarios"].items():
        lines = [
            f"**{name}**",
            "",
            "| layer | input × weight | stock | collectives | noalias | collectives |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows:
            layer = Layer(**row["layer"])
            title = f"{layer.name} ({layer.count}×)" if layer.count > 1 else layer.name
            cells = [title, f"`{layer.input} × {layer.weight}`"]
            for which in ("stock", "noalias"):
                cells += _cells(row[which], layer.count)
            lines.append(f"| {' | '.join(cells)} |")
        totals = [_total(rows, which) for which in ("stock", "noalias")]
        lines.append(f"| **block** | | **{totals[0]}** | | **{totals[1]}** | |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _mebibytes(amount: float) -> str:
    return f"{amount / 2**20:,.0f} MiB"


def _cells(value: dict[str, Any], count: int) -> list[str]:
    charged = Bill(**value)
    if charged.message:
        return ["raises", ""]
    kinds = " + ".join(f"{n * count} {kind}" for kind, n in sorted(charged.kinds.items()))
    return [_mebibytes(count * (charged.forward + charged.backward)), kinds or "none"]


def _total(rows: list[dict[str, Any]], which: str) -> str:
    if any(row[which]["message"] for row in rows):
        return "raises"
    moved = (
        row["layer"]["count"] * (row[which]["forward"] + row[which]["backward"]) for row in rows
    )
    return _mebibytes(sum(moved))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m noalias.bench.scale", description=__doc__)
    parser.add_argument(
        "--json", type=Path, help="write each layer here; go on behind those that are there"
    )
    parser.add_argument("--from-json", type=Path, help="print the tables of an earlier run")
    options = parser.parse_args(arguments)
    source = options.from_json or options.json
    result: Result = {"scenarios": {}}
    if source is not None and (options.from_json or source.exists()):
        result = json.loads(source.read_text(encoding="utf-8"))
    if options.from_json is None:
        try:
            for longer in report(result if result["scenarios"] else None):
                result = longer
                if options.json is not None:
                    text = json.dumps(result, indent=1) + "\n"
                    options.json.write_text(text, encoding="utf-8")
        except ValueError as error:
            print(f"{parser.prog}: {options.json}: {error}", file=sys.stderr)
            return 2
    print(markdown(result), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
