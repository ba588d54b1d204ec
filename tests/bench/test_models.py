"""Networks: which run here, why others are skipped, and what is said about the gain."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from noalias.bench import models, zoo
from noalias.bench.compare import Built, Comparison, Program, Side, Skipped
from noalias.bench.counts import Counts
from noalias.bench.measure import Ratio, Timing

BUILT_IN = [program for program in zoo.PROGRAMS if not program.requires]


def _never(device: torch.device) -> Built:
    raise AssertionError("a program whose package is missing must not be built")


def test_a_missing_package_is_skipped_with_the_command_that_installs_it() -> None:
    program = Program("net", _never, (("noalias_no_such_package", "no-such-package"),))
    (row,) = models.run(programs=[program], rounds=1)
    assert row == Skipped(
        "net", "noalias_no_such_package is not installed: pip install no-such-package"
    )


def test_a_package_for_another_torch_is_skipped_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "noalias_broken":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    reason = models.missing(Program("net", _never, (("noalias_broken", "broken"),)))
    assert reason is not None
    assert "operator torchvision::nms does not exist" in reason
    assert "pip install --upgrade broken" in reason


def test_a_package_that_is_there_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "noalias_here", ModuleType("noalias_here"))
    assert models.missing(Program("net", _never, (("noalias_here", "here"),))) is None


@pytest.mark.parametrize("program", BUILT_IN, ids=[program.name for program in BUILT_IN])
def test_networks_of_our_own_train(program: Program) -> None:
    built = program.build(torch.device("cpu"))
    built.forward().backward()
    assert all(leaf.grad is not None for leaf in built.leaves)


@pytest.mark.parametrize("program", zoo.PROGRAMS, ids=[p.name for p in zoo.PROGRAMS])
def test_names_are_distinct_and_what_they_need_can_be_named(program: Program) -> None:
    assert [p.name for p in zoo.PROGRAMS].count(program.name) == 1
    assert all(module and distribution for module, distribution in program.requires)


def _row(name: str, time: float) -> Comparison:
    side = Side(0, Counts(0, 1, 1), Timing((1.0,)))
    return Comparison(name, side, side, Ratio(time, time), "identical")


def test_the_summary_says_where_the_gain_is_large_small_or_a_loss() -> None:
    said = models.summary([_row("a", 0.5), _row("b", 0.99), _row("c", 1.2), Skipped("d", "why")])
    assert "falls by 5% or more in: a." in said
    assert "Within 5% of stock, so that bytes are the gain: b." in said
    assert "Slower by 5% or more in: c." in said
    assert "d" not in said.replace("and", "").split(": ")[-1]
