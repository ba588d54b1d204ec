"""`linear` with an in-place activation: before PyTorch's change, as installed, by hand, and ours.

- *before*: flatten, `addmm`, restore by `view`. This is what `F.linear` does up to 2.14.
- *stock*: `F.linear` of the installed PyTorch.
- *workaround*: what one writes by hand to avoid the view: flatten, `F.linear` in 2-D, activation in
  place, `view` at the very end.
- *after*: `noalias.linear`.
- *after + enable()*: the same with the cures on, where the core can be built.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

import noalias
from noalias import graph, native
from noalias.bench import bits, text
from noalias.bench.counts import Counts, count
from noalias.bench.measure import Ratio, Step, Timing, Variant, interleave, ratio
from noalias.bench.progress import Progress, Silent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.table import Table

LinearFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Activation = Callable[[torch.Tensor], torch.Tensor]

ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu_,
    "leaky_relu": F.leaky_relu_,
    "elu": F.elu_,
    "hardtanh": F.hardtanh_,
    "silu": partial(F.silu, inplace=True),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class Workload:
    """What is computed: `layers` times linear and activation on an input of `shape`.

    Attributes:
        shape: of the input, at least one dimension; the last is the number of input features.
        features: of every layer's output.
        dtype: a key of `DTYPES`.
        device: as `torch.device` takes it.
        activation: a key of `ACTIVATIONS`.
        layers: 1 or more.
    """

    shape: tuple[int, ...] = (32, 64, 64, 64)
    features: int = 64
    dtype: str = "float32"
    device: str = "cpu"
    activation: str = "relu"
    layers: int = 1

    @property
    def activation_bytes(self) -> int:
        """Size of one layer's output."""
        rows = 1
        for extent in self.shape[:-1]:
            rows *= extent
        return rows * self.features * DTYPES[self.dtype].itemsize


PRESETS: dict[str, tuple[tuple[int, ...], int]] = {
    # 131,072 rows of 64: memory-bound, half a second in all on a laptop.
    "quick": ((32, 64, 64, 64), 64),
    # The size PyTorch's own change was measured with: three allocations of 1000 MiB. For a GPU.
    "seed": ((64, 64, 64, 1000), 1000),
}


@dataclass(frozen=True)
class Row:
    """One implementation, measured.

    Attributes:
        time: forward and backward.
        to_workaround: `time` over the workaround's.
        nodes: in the backward graph, leaves' accumulators included.
        copy_slices: those of them that are `CopySlices`.
        gradients_equal: to the workaround's, in every bit.
    """

    name: str
    time: Timing
    to_workaround: Ratio
    counts: Counts
    nodes: int
    copy_slices: int
    gradients_equal: bool


@dataclass(frozen=True)
class ThreeWay:
    workload: Workload
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)


def before(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """What `F.linear` does with a contiguous input of more than two dimensions up to 2.14."""
    flat = torch.addmm(bias, x.flatten(0, -2) if x.dim() > 1 else x[None], weight.t())
    return flat.view(*x.shape[:-1], weight.shape[0])


@dataclass
class _Work:
    """Inputs, and the layers applied to them by one of the implementations."""

    workload: Workload
    x: torch.Tensor = field(init=False)
    gradient: torch.Tensor = field(init=False)
    weights: list[torch.Tensor] = field(init=False)
    biases: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        load = self.workload
        make = torch.Generator().manual_seed(0)
        device, dtype = torch.device(load.device), DTYPES[load.dtype]

        def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
            drawn = torch.randn(shape, generator=make).mul_(scale)
            return drawn.to(device, dtype).requires_grad_()

        self.x = normal(*load.shape)
        # Dense, as the next layer's would be, and made once: no loss is part of what is measured.
        self.gradient = normal(*load.shape[:-1], load.features).detach()
        widths = [load.shape[-1], *[load.features] * load.layers]
        pairs = list(pairwise(widths))
        self.weights = [normal(out, into, scale=into**-0.5) for into, out in pairs]
        self.biases = [normal(out) for _, out in pairs]

    @property
    def leaves(self) -> list[torch.Tensor]:
        return [self.x, *self.weights, *self.biases]

    def layered(self, linear: LinearFunction) -> torch.Tensor:
        activate = ACTIVATIONS[self.workload.activation]
        y = self.x
        for weight, bias in zip(self.weights, self.biases, strict=True):
            y = activate(linear(y, weight, bias))
        return y

    def by_hand(self) -> torch.Tensor:
        activate = ACTIVATIONS[self.workload.activation]
        y = self.x.flatten(0, -2) if self.x.dim() > 1 else self.x[None]
        for weight, bias in zip(self.weights, self.biases, strict=True):
            y = activate(F.linear(y, weight, bias))
        return y.view(*self.x.shape[:-1], self.workload.features)

    def forget_gradients(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None


def run(
    workload: Workload,
    *,
    rounds: int = 20,
    budget: float | None = 60.0,
    progress: Progress | None = None,
) -> ThreeWay:
    """Measure every row.

    Raises:
        RuntimeError: from PyTorch, where the device has too little memory for the workload.
    """
    work = _Work(workload)
    device = torch.device(workload.device)
    notes: list[str] = []
    forwards: dict[str, Callable[[], torch.Tensor]] = {
        "before": lambda: work.layered(before),
        "stock": lambda: work.layered(F.linear),
        "workaround": work.by_hand,
        "after": lambda: work.layered(noalias.linear),
    }
    contexts: dict[str, Callable[[], AbstractContextManager[object]]] = {}
    if native.try_load() is None:
        notes.append(
            "the core is not built here (noalias doctor says why): noalias.linear is the Python "
            "composite, and there is no row with the cures on"
        )
    else:
        forwards["after + enable()"] = forwards["after"]
        contexts["after + enable()"] = noalias.enabled
    variants = [
        Variant(name, partial(_fresh_step, work, forward), contexts.get(name, nullcontext))
        for name, forward in forwards.items()
    ]
    timings = interleave(
        variants,
        rounds=rounds,
        device=device,
        budget=budget,
        label="three-way: time",
        progress=progress,
    )
    return ThreeWay(workload, _rows(work, variants, forwards, timings, progress), tuple(notes))


def _fresh_step(work: _Work, forward: Callable[[], torch.Tensor]) -> Step:
    work.forget_gradients()
    return lambda: forward().backward(work.gradient)


def _rows(
    work: _Work,
    variants: list[Variant],
    forwards: dict[str, Callable[[], torch.Tensor]],
    timings: dict[str, Timing],
    progress: Progress | None,
) -> tuple[Row, ...]:
    watcher = progress or Silent()
    watcher.begin("three-way: counts", len(variants))
    device = torch.device(work.workload.device)
    expected = _gradients(work, next(v for v in variants if v.name == "workaround"))
    rows = []
    for variant in variants:
        with variant.context():
            names = graph.names(forwards[variant.name]())
        got = _gradients(work, variant)
        rows.append(
            Row(
                name=variant.name,
                time=timings[variant.name],
                to_workaround=ratio(timings[variant.name], timings["workaround"]),
                counts=count(variant.prepare, device=device, context=variant.context),
                nodes=names.total(),
                copy_slices=names[graph.COPY_SLICES],
                gradients_equal=all(map(bits.same, got, expected)),
            )
        )
        watcher.advance()
    return tuple(rows)


def _gradients(work: _Work, variant: Variant) -> list[torch.Tensor]:
    with variant.context():
        variant.prepare()()
    return [leaf.grad for leaf in work.leaves if leaf.grad is not None]


_ROWS = (
    "before: F.linear up to PyTorch 2.14; stock: F.linear as installed;\n"
    "workaround: flattened by hand; after: noalias.linear."
)


def table(result: ThreeWay) -> Table:
    load = result.workload
    shape = " × ".join(map(str, load.shape))
    title = (
        f"{load.layers} × (linear, {load.activation}_), forward and backward\n"
        f"{shape} to {load.features} features, {load.dtype}, {load.device}; "
        f"one activation is {text.size(load.activation_bytes)}"
    )
    columns = (
        *("", "min\nms", "median\nms", "to work-\naround", "copies", "allocated\nMiB", "peak\nMiB"),
        *("nodes", "Copy-\nSlices"),
    )
    differ = [row.name for row in result.rows if not row.gradients_equal]
    gradients = (
        f"Gradients differ from the workaround's: {', '.join(differ)}."
        if differ
        else "Gradients of all rows are the same in every bit."
    )
    return text.grid(title, columns, map(_cells, result.rows), caption=f"{_ROWS}\n{gradients}")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        text.milliseconds(row.time.minimum),
        text.milliseconds(row.time.median),
        f"{row.to_workaround.of_minima:.2f}",
        str(row.counts.copies),
        text.mebibytes(row.counts.allocated_bytes),
        text.mebibytes(row.counts.peak_bytes),
        str(row.nodes),
        str(row.copy_slices),
    )
