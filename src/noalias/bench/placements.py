"""Stock ``F.linear`` and ``noalias.linear`` on DTensors, placement by placement.

``python -m noalias.bench.placements`` runs every case of :mod:`noalias.bench.placement_cases` on 4
gloo ranks, forward and backward, compares with one process and counts collectives with
``CommDebugMode``.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import noalias
from noalias.bench import machine
from noalias.bench.placement_cases import CASES, Case, placements, short
from noalias.bench.ranks import on_ranks

TOLERANCE = 1e-5  # largest difference, relative to the largest value or to 1

Row = dict[str, dict[str, Any]]  # a line of the JSON: "case", "stock", "noalias"
LinearFunction = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]


@dataclass(frozen=True)
class Outcome:
    """What one function did on one case.

    ``verdict``: ``works``, ``wrong`` (some value off by more than ``TOLERANCE``) or ``raises``.
    ``forward``, ``backward``: collectives by kind. ``error``: the largest difference from one
    process over output and gradients. ``placed``: output and gradients, in that order.
    """

    verdict: str
    message: str
    forward: dict[str, int]
    backward: dict[str, int]
    error: float
    placed: list[str]


def measure(case: Case, function: LinearFunction) -> Outcome:
    """Run ``function`` on ``case``, forward and backward, on every rank of the process group."""
    mesh = _mesh(case.mesh)
    whole = _operands(case)
    distributed = [_place(t, mesh, p) for t, p in zip(whole, _placed(case), strict=True)]
    x, w, b = distributed
    assert x is not None
    assert w is not None
    forward, output, problem = _counted(lambda: function(x, w, b))
    if problem is not None or not isinstance(output, DTensor):
        return Outcome("raises", problem or "no DTensor", forward, {}, math.inf, [])
    expected, gradient = _reference(whole)
    incoming = [Replicate() if isinstance(p, Partial) else p for p in output.placements]
    arriving = distribute_tensor(gradient, mesh, incoming)
    backward, _, problem = _counted(lambda: output.backward(arriving))
    if problem is not None:
        return Outcome("raises", problem, forward, backward, math.inf, [short(output.placements)])
    results = [output, *(tensor.grad for tensor in distributed if tensor is not None)]
    error = max(_difference(have, want) for have, want in zip(results, expected, strict=True))
    verdict = "works" if error <= TOLERANCE else "wrong"
    placed = [short(r.placements) if isinstance(r, DTensor) else "none" for r in results]
    return Outcome(verdict, "", forward, backward, error, placed)


@functools.cache
def _mesh(shape: tuple[int, ...]) -> DeviceMesh:
    return init_device_mesh("cpu", shape)


def _placed(case: Case) -> list[str | None]:
    return [case.input, case.weight, case.bias]


def _operands(case: Case) -> list[Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    features = case.shape[-1]
    bias = torch.randn(case.out_features, generator=generator)
    return [
        torch.randn(case.shape, generator=generator),
        torch.randn(case.out_features, features, generator=generator) / math.sqrt(features),
        None if case.bias is None else bias,
    ]


def _place(tensor: Tensor | None, mesh: DeviceMesh, text: str | None) -> Tensor | None:
    """A leaf whose global value is ``tensor``; terms of a sum differ from rank to rank."""
    if tensor is None or text is None:
        return None
    wanted = placements(text)
    plain = [Replicate() if isinstance(p, Partial) else p for p in wanted]
    local = distribute_tensor(tensor, mesh, plain).to_local().clone()
    for dim, placement in enumerate(wanted):
        if isinstance(placement, Partial):
            local = _term(local, placement.reduce_op, mesh.size(dim), mesh.get_local_rank(dim))
    placed = DTensor.from_local(
        local, mesh, wanted, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
    return placed.detach().requires_grad_()


def _term(local: Tensor, reduction: str, ranks: int, rank: int) -> Tensor:
    if reduction == "max":
        return local - rank
    share = 2 * (rank + 1) / (ranks * (ranks + 1))
    return local * share * (ranks if reduction == "avg" else 1)


def _reference(whole: list[Tensor | None]) -> tuple[list[Tensor], Tensor]:
    """Output and gradients from one process, and the gradient that goes into backward."""
    leaves = [None if t is None else t.clone().requires_grad_() for t in whole]
    x, w, b = leaves
    assert x is not None
    assert w is not None
    output = F.linear(x, w, b)
    gradient = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    output.backward(gradient)
    gradients = [leaf.grad for leaf in leaves if leaf is not None]
    return [output.detach(), *(g for g in gradients if g is not None)], gradient


def _counted(call: Callable[[], Tensor | None]) -> tuple[dict[str, int], Tensor | None, str | None]:
    """Collectives, result, and the first line of the error that any of the ranks had."""
    result, problem = None, None
    with CommDebugMode() as mode:
        try:
            result = call()
        except (RuntimeError, ValueError, AssertionError, IndexError, NotImplementedError) as error:
            problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    counts = {str(kind).rpartition(".")[2]: n for kind, n in mode.get_comm_counts().items() if n}
    problems: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(problems, problem)
    return counts, result, next((p for p in problems if p is not None), None)


def _difference(have: Tensor | None, want: Tensor) -> float:
    if not isinstance(have, DTensor):
        return math.inf
    full = have.full_tensor()
    if full.shape != want.shape:
        return math.inf
    scale = max(1.0, want.abs().max().item()) if want.numel() else 1.0
    return ((full - want).abs().max().item() if want.numel() else 0.0) / scale


def rows() -> list[Row]:
    """All cases, stock and ours, on the ranks of the process group."""
    functions: dict[str, LinearFunction] = {"stock": F.linear, "noalias": noalias.linear}
    table = []
    for case in CASES:
        row: Row = {"case": asdict(case)}
        for name, function in functions.items():
            row[name] = asdict(measure(case, function))
        table.append(row)
    return table


def markdown(table: Sequence[Row]) -> str:
    """The table of docs/distributed.md."""
    lines = [
        "| placement | mesh | input × weight + bias | stock | collectives | error "
        "| noalias | collectives | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in table:
        case = _case(row["case"])
        name = f"[{case.name}]({case.report})" if case.report else case.name
        mesh = "×".join(map(str, case.mesh))
        cells = [name, mesh, f"`{case.operands}`", *_cells(row["stock"]), *_cells(row["noalias"])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _case(fields: dict[str, Any]) -> Case:
    read: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    return Case(**read)


def _cells(value: dict[str, Any]) -> list[str]:
    outcome = Outcome(**value)
    if outcome.verdict == "raises":
        return [f"**raises** ({outcome.message.partition(':')[0]})", "", ""]
    kinds = [
        f"{_plural(counts)} {when}"
        for when, counts in (("forward", outcome.forward), ("backward", outcome.backward))
        if counts
    ]
    verdict = outcome.verdict if outcome.verdict == "works" else f"**{outcome.verdict}**"
    return [verdict, ", ".join(kinds) or "none", f"{outcome.error:.0e}"]


def _plural(counts: dict[str, int]) -> str:
    names = {
        "all_gather_into_tensor": "all-gather",
        "reduce_scatter_tensor": "reduce-scatter",
        "all_reduce": "all-reduce",
        "all_to_all_single": "all-to-all",
        "shard_dim_alltoall": "all-to-all",
    }
    return " + ".join(f"{n} {names.get(kind, kind)}" for kind, n in counts.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 if ``noalias.linear`` is not right everywhere, else 0."""
    parser = argparse.ArgumentParser(prog="python -m noalias.bench.placements", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the measurements here")
    parser.add_argument("--from-json", type=Path, help="print the table of an earlier run")
    options = parser.parse_args(arguments)
    if options.from_json is not None:
        report = json.loads(options.from_json.read_text(encoding="utf-8"))
    else:
        described = asdict(machine.describe(torch.device("cpu")))
        report = {"machine": described, "ranks": 4, "cases": on_ranks(rows)[0]}
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(markdown(report["cases"]), end="")
    ours = [row["noalias"]["verdict"] for row in report["cases"]]
    return 0 if all(verdict == "works" for verdict in ours) else 1


if __name__ == "__main__":
    # Under its importable name, which the ranks can pickle.
    from noalias.bench import placements as this

    sys.exit(this.main())
