"""What the sweep found: for each hidden view, what an in-place consumer costs, stock and cured."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

import noalias
from noalias.bench import counts
from noalias.bench.machine import Machine, describe
from noalias.bench.measure import Step
from noalias.bench.progress import Progress
from noalias.sweep.operators import Case, NotRun, databases

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Cost:
    """What ``output.mul_(2)`` and its backward cost; the operator's own forward is not counted.

    Attributes:
        copies: ``aten::copy_`` calls; ``None`` where PyTorch raises.
        bytes: bytes allocated.
        error: ``refused`` (a view may not be written to) or ``saved`` (backward needs the value
            that was overwritten, which is right), ``None`` where it runs.
    """

    copies: int | None
    bytes: int | None
    error: str | None


@dataclass(frozen=True)
class HiddenView:
    """An operator one of whose outputs is a view of a memory that no input has.

    Attributes:
        samples: how many of the samples that were run return a hidden view.
        node: the output's node, e.g. ``ViewBackward0``.
        shape: of the output, in the first such sample.
        stock: the cost in stock PyTorch.
        cured: the cost with the cures on.
        gradients_equal: bit for bit; ``None`` where one of the two raises.
    """

    name: str
    kind: str
    samples: int
    node: str
    shape: list[int]
    stock: Cost
    cured: Cost
    gradients_equal: bool | None


@dataclass(frozen=True)
class Sweep:
    """One sweep over the installed PyTorch."""

    schema_version: int
    machine: Machine
    entries: int
    samples_each: int
    hidden: list[HiddenView]
    not_run: list[NotRun]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def sweep(samples: int, progress: Progress) -> Sweep:
    """Run every operator and module on its first ``samples`` samples.

    Raises:
        noalias.sweep.operators.DatabaseUnavailable: a package that the databases need is missing.
        noalias.native.NativeUnavailable: the core cannot be built.
    """
    found: dict[tuple[str, str], list[Case]] = {}
    not_run: dict[str, NotRun] = {}
    with warnings.catch_warnings():
        # The samples' own: deprecated arguments, features in beta.
        warnings.simplefilter("ignore")
        entries, walk = databases(samples)
        progress.begin("operators and modules", entries)
        for item in walk:
            if item is None:
                progress.advance()
            elif isinstance(item, NotRun):
                not_run.setdefault(item.name, item)
            else:
                found.setdefault((item.kind, item.name), []).append(item)
        progress.begin("price of an in-place consumer", len(found))
        hidden = []
        for cases in found.values():
            hidden.append(_price(cases))
            progress.advance()
    return Sweep(
        SCHEMA_VERSION,
        describe(torch.device("cpu")),
        entries,
        samples,
        sorted(hidden, key=lambda view: (view.kind, view.name)),
        sorted(not_run.values(), key=lambda item: item.name),
    )


def _price(cases: list[Case]) -> HiddenView:
    case = cases[0]
    index = case.outputs[0]
    _, outputs = case.call()
    node = outputs[index].grad_fn
    shape = list(outputs[index].shape)
    del outputs
    stock = _attempt(case, index)
    with noalias.enabled():
        cured = _attempt(case, index)
    equal = None
    if stock.gradients is not None and cured.gradients is not None:
        equal = _same(stock.gradients, cured.gradients)
    return HiddenView(
        name=case.name,
        kind=case.kind,
        samples=len(cases),
        node=node.name() if node is not None else "",
        shape=shape,
        stock=stock.cost,
        cured=cured.cost,
        gradients_equal=equal,
    )


@dataclass(frozen=True)
class _Attempt:
    gradients: list[Tensor | None] | None
    cost: Cost


def _attempt(case: Case, index: int) -> _Attempt:
    def prepare() -> Step:
        _, outputs = case.call()
        target = outputs.pop(index)
        outputs.clear()

        def step() -> None:
            target.mul_(2)
            target.abs().sum().backward()

        return step

    try:
        inputs, written = _write(case, index)
        written.abs().sum().backward()
        counted = counts.count(prepare)
    except RuntimeError as error:
        for message, name in _ERRORS.items():
            if message in str(error):
                return _Attempt(None, Cost(None, None, name))
        raise
    cost = Cost(counted.copies, counted.allocated_bytes, None)
    return _Attempt([leaf.grad for leaf in inputs], cost)


# PyTorch's two reasons to refuse: it cannot tell how gradients pass, or backward needs the value
# that was overwritten.
_ERRORS = {
    "is a view and is being modified inplace": "refused",
    "has been modified by an inplace operation": "saved",
}


def _write(case: Case, index: int) -> tuple[list[Tensor], Tensor]:
    inputs, outputs = case.call()
    target = outputs.pop(index)
    outputs.clear()
    return inputs, target.mul_(2)


def _same(left: list[Tensor | None], right: list[Tensor | None]) -> bool:
    return all(
        a is b or (a is not None and b is not None and torch.equal(a.nan_to_num(), b.nan_to_num()))
        for a, b in zip(left, right, strict=True)
    )


def read(path: Path) -> dict[str, object]:
    """The JSON of an earlier sweep.

    Raises:
        ValueError: the file is no sweep, or of another schema.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{path} is no sweep of schema version {SCHEMA_VERSION}")
    return data
