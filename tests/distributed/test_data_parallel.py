"""FSDP2 and DDP with the cures on, on 4 gloo ranks of this machine."""

from __future__ import annotations

from typing import Any

import pytest

from noalias.bench.ranks import on_ranks
from tests.distributed import data_parallel_checks as checks

Answers = list[dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(core: object) -> Answers:
    return on_ranks(checks.everything)  # type: ignore[return-value]


def each_rank(answers: Answers, check: Any) -> list[dict[str, Any]]:
    found = [answer[check.__name__] for answer in answers]
    for rank, answer in enumerate(found):
        assert "traceback" not in answer, f"rank {rank}: {answer['traceback']}"
    return found


FSDP = pytest.mark.parametrize(
    "check",
    [checks.fsdp_cured, checks.fsdp_cured_checkpointed],
    ids=["plain", "checkpointed"],
)


@FSDP
def test_fsdp_finds_no_view_to_warn_of(answers: Answers, check: Any) -> None:
    for answer in each_rank(answers, check):
        assert answer["warnings"] == []


@FSDP
def test_fsdp_keeps_every_pre_backward_hook_when_outputs_are_written_to(
    answers: Answers, check: Any
) -> None:
    for answer in each_rank(answers, check):
        assert answer["pre_backward"] == 5


@FSDP
def test_fsdp_gradients_are_those_of_one_process(answers: Answers, check: Any) -> None:
    for answer in each_rank(answers, check):
        assert all(answer["close"])


@pytest.mark.parametrize("way", ["plain", "checkpointed"])
def test_ddp_gradients_are_the_same_bits_with_and_without_the_cures(
    answers: Answers, way: str
) -> None:
    for answer in each_rank(answers, checks.ddp):
        assert answer[way]
        assert answer[f"{way} alone"]
