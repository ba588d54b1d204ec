"""Parallel styles under ``torch.compile``: a compiled training step is the eager one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from noalias.bench.ranks import on_ranks
from tests.distributed import compile_checks as checks
from tests.distributed.support import Answers, Check, each_rank

LAYOUTS = [f"{way} {between}" for way in checks.WAYS for between in ("local", "placed")]


@pytest.fixture(scope="module")
def four(core: object) -> Answers:
    return on_ranks(checks.on_four)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def compiled_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An empty cache that the ranks share, as the ranks of one machine do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(scope="module")
def two(core: object, compiled_code: None) -> Answers:
    return on_ranks(checks.on_two, ranks=2)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def two_again(two: Answers) -> Answers:
    return on_ranks(checks.on_two_again, ranks=2)  # type: ignore[return-value]


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_rank_may_be_given_the_cached_graph_of_another(two_again: Answers, layout: str) -> None:
    judge(two_again, checks.inductor, layout)
