"""The sweep finds hidden views, prices them, and says what could not be run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from noalias.bench.progress import Silent
from noalias.cli import main
from noalias.sweep import operators, report, result
from noalias.sweep.operators import Case, NotRun


def case(call: Any) -> list[Case | NotRun]:
    return list(operators._case("made_up", "operator", 0, call))


def leaf() -> Tensor:
    torch.manual_seed(0)  # as the databases' calls do: every run has the same inputs
    return torch.randn(2, 3, requires_grad=True)


def test_view_of_a_temporary_is_found() -> None:
    def call() -> tuple[list[Tensor], list[Tensor]]:
        x = leaf()
        return [x], [x * 2, (x * 2).view(-1)]

    (found,) = case(call)
    assert isinstance(found, Case)
    assert found.outputs == [1]


def test_view_of_an_input_is_not_found() -> None:
    def call() -> tuple[list[Tensor], list[Tensor]]:
        x = leaf()
        return [x], [x.view(-1)]

    assert case(call) == []


def test_sample_that_cannot_run_is_listed_with_its_reason() -> None:
    def call() -> tuple[list[Tensor], list[Tensor]]:
        raise RuntimeError("no such build\nand more")

    assert case(call) == [NotRun("made_up", "RuntimeError: no such build")]


def test_price_counts_the_copies_that_the_cure_saves() -> None:
    def call() -> tuple[list[Tensor], list[Tensor]]:
        x = leaf()
        return [x], [(x * 2).view(-1)]

    (found,) = case(call)
    assert isinstance(found, Case)
    view = result._price([found])
    assert view.gradients_equal
    assert view.stock.copies is not None
    assert view.cured.copies is not None
    assert view.stock.copies > view.cured.copies
    assert view.node == "ViewBackward0"


def test_refused_and_saved_are_told_apart() -> None:
    def split() -> tuple[list[Tensor], list[Tensor]]:
        x = leaf()
        return [x], [(x * 2).unbind(0)[0]]

    def saved() -> tuple[list[Tensor], list[Tensor]]:
        x = leaf()
        return [x], [x.exp().view(-1)]

    prices = []
    for call in (split, saved):
        (found,) = case(call)
        assert isinstance(found, Case)
        prices.append(result._price([found]))
    assert (prices[0].stock.error, prices[0].cured.error) == ("refused", None)
    assert (prices[1].stock.error, prices[1].cured.error) == ("saved", "saved")


@pytest.fixture(scope="module")
def sweep_of_a_few() -> result.Sweep:
    with pytest.MonkeyPatch.context() as patch:
        from torch.testing._internal import common_methods_invocations, common_modules

        chosen = ("nn.functional.instance_norm", "einsum", "mul")
        patch.setattr(
            common_methods_invocations,
            "op_db",
            [op for op in common_methods_invocations.op_db if op.name in chosen],
        )
        patch.setattr(
            common_modules,
            "module_db",
            [info for info in common_modules.module_db if info.name == "nn.InstanceNorm1d"],
        )
        return result.sweep(8, Silent())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_operators_and_modules_with_hidden_views_are_listed(sweep_of_a_few: result.Sweep) -> None:
    names = {view.name for view in sweep_of_a_few.hidden}

    assert names == {"nn.functional.instance_norm", "einsum", "InstanceNorm1d"}
    assert all(view.gradients_equal for view in sweep_of_a_few.hidden)
    assert "instance_norm" in report.table(sweep_of_a_few)


def test_sweeps_of_versions_are_compared(sweep_of_a_few: result.Sweep, tmp_path: Path) -> None:
    old, new = json.loads(sweep_of_a_few.to_json()), json.loads(sweep_of_a_few.to_json())
    old["machine"]["torch"], new["machine"]["torch"] = "2.9.1+cpu", "2.15.0"
    new["hidden"] = new["hidden"][1:]
    text = report.compare([new, old], None)

    assert text.index("2.9.1") < text.index("2.15.0")
    assert "in all" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--samples", "0"], "--samples must be at least 1"),
        (["--picture", "x.svg"], "--picture draws what --compare is given"),
        (["--compare", "nowhere.json"], "No such file"),
    ],
)
def test_bad_input_is_a_usage_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == 2
    assert message in capsys.readouterr().err


def test_committed_sweeps_can_be_read_and_compared() -> None:
    paths = sorted((Path(__file__).parents[2] / "benchmarks" / "sweep").glob("*.json"))
    sweeps = [result.read(path) for path in paths]

    assert len(sweeps) >= 3
    assert "nn.functional.instance_norm" in report.compare(sweeps, None)
