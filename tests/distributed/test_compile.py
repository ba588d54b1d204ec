"""Parallel styles under ``torch.compile``: a compiled training step is the eager one."""

from __future__ import annotations

import pytest

from noalias.bench.ranks import on_ranks
from tests.distributed import compile_checks as checks
from tests.distributed.support import Answers, Check, each_rank

LAYOUTS = [f"{way} {between}" for way in checks.WAYS for between in ("local", "placed")]


@pytest.fixture(scope="module")
def four(core: object) -> Answers:
    return on_ranks(checks.on_four)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def two(core: object) -> Answers:
    return on_ranks(checks.on_two, ranks=2)  # type: ignore[return-value]


def judge(answers: Answers, check: Check, layout: str) -> None:
    for answer in each_rank(answers, check):
        assert answer[layout]["eager"] <= 1e-5
        assert answer[layout]["alone"] <= 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_four_ranks_compiled_to_the_joint_graph(four: Answers, layout: str) -> None:
    judge(four, checks.aot_eager, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_compiled_to_the_joint_graph(two: Answers, layout: str) -> None:
    judge(two, checks.aot_eager, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_two_ranks_compiled_by_inductor(two: Answers, layout: str) -> None:
    judge(two, checks.inductor, layout)
