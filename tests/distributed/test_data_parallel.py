"""FSDP2 and DDP with the cures on, on 4 gloo ranks of this machine."""

from __future__ import annotations

import pytest

from noalias.bench.ranks import on_ranks
from tests.distributed import data_parallel_checks as checks
from tests.distributed.support import Answers, Check, each_rank


@pytest.fixture(scope="module")
def answers(core: object) -> Answers:
    return on_ranks(checks.everything)  # type: ignore[return-value]


FSDP = pytest.mark.parametrize(
    "check",
    [checks.fsdp_cured, checks.fsdp_cured_checkpointed],
    ids=["plain", "checkpointed"],
)


@FSDP
def test_fsdp_finds_no_view_to_warn_of(answers: Answers, check: Check) -> None:
    for answer in each_rank(answers, check):
        assert answer["warnings"] == []


@FSDP
def test_fsdp_keeps_every_pre_backward_hook_when_outputs_are_written_to(
    answers: Answers, check: Check
) -> None:
    for answer in each_rank(answers, check):
        assert answer["pre_backward"] == 5


@FSDP
def test_fsdp_gradients_are_those_of_one_process(answers: Answers, check: Check) -> None:
    for answer in each_rank(answers, check):
        assert all(answer["close"])


@pytest.mark.parametrize("way", ["plain", "checkpointed"])
def test_ddp_gradients_are_the_same_bits_with_and_without_the_cures(
    answers: Answers, way: str
) -> None:
    for answer in each_rank(answers, checks.ddp):
        assert answer[way]
        assert answer[f"{way} alone"]


@pytest.mark.parametrize("way", ["plain", "checkpointed"])
def test_ddp_was_compared_where_there_is_something_to_cure(answers: Answers, way: str) -> None:
    for answer in each_rank(answers, checks.ddp):
        stock, cured = answer[f"{way} rebased"]
        assert stock > 0
        assert cured == 0


def test_without_the_cures_fsdp_warns_or_loses_a_hook(core: object) -> None:
    """What the tests of FSDP2 above would see if nothing were cured: they can fail."""
    for answer in on_ranks(checks.without_cures):
        stock = answer["fsdp_stock"]
        wrong = "traceback" in stock or stock["warnings"] or stock["pre_backward"] < 5
        assert wrong, stock
