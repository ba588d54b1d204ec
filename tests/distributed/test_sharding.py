"""``noalias.linear`` on DTensors, on 4 gloo ranks of this machine."""

from __future__ import annotations

import pytest

from noalias.bench.placement_cases import CASES, Case
from noalias.bench.ranks import on_ranks
from tests.distributed import sharding_checks as checks
from tests.distributed.lower_bound import bound
from tests.distributed.support import Answers, each_rank


@pytest.fixture(scope="module")
def answers(core: object) -> Answers:
    return on_ranks(checks.everything)  # type: ignore[return-value]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_output_and_gradients_are_those_of_one_process(answers: Answers, case: Case) -> None:
    for answer in each_rank(answers, checks.placements):
        outcome = answer[case.name]
        assert outcome["verdict"] == "works", outcome
        assert outcome["error"] <= 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_more_collectives_than_the_placements_need(answers: Answers, case: Case) -> None:
    outcome = each_rank(answers, checks.placements)[0][case.name]
    counted = (sum(outcome["forward"].values()), sum(outcome["backward"].values()))
    assert counted == case.collectives, outcome


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_fewer_collectives_could_do(answers: Answers, case: Case) -> None:
    outcome = each_rank(answers, checks.placements)[0][case.name]
    assert bound(case, output=outcome["placed"][0]) == case.collectives


def test_a_replicated_bias_of_a_row_layer_is_added_once_to_the_last_bit(answers: Answers) -> None:
    found = each_rank(answers, checks.bias_is_counted_once)
    assert [answer["inside"] for answer in found] == [True, True, True, False]
    assert all(answer["exact"] for answer in found)
    assert all(answer["shape"] == (2, 5, 16) for answer in found)


def test_a_bad_shape_raises_on_all_ranks_before_any_collective(answers: Answers) -> None:
    found = each_rank(answers, checks.bad_shapes_raise_before_any_collective)
    assert [answer["collectives"] for answer in found] == [0] * 4
    first = found[0]["messages"]
    assert all(answer["messages"] == first for answer in found)
    assert "[5, 6, 12]" in first[0]
    assert "[16, 11]" in first[0]
    assert "give it shape [16]" in first[1]
    assert first[2] == first[0]


def test_a_bad_dtype_raises_on_all_ranks_though_one_alone_adds_the_bias(answers: Answers) -> None:
    found = each_rank(answers, checks.bad_dtypes_raise_on_every_rank)
    first = found[0]["messages"]
    assert all(answer["messages"] == first for answer in found)
    assert "input is torch.float32 and bias is torch.float64" in first[0]
    assert "grad_output is torch.float64 and input is torch.float32" in first[1]


def test_a_plain_tensor_among_dtensors_is_refused_as_elsewhere(answers: Answers) -> None:
    for answer in each_rank(answers, checks.plain_tensors_do_not_mix):
        assert "mixed torch.Tensor and DTensor" in answer["message"]
        assert answer["implicit"]


def test_operands_on_two_meshes_are_refused(answers: Answers) -> None:
    for answer in each_rank(answers, checks.two_meshes_do_not_mix):
        assert "two device meshes" in answer["message"]


def test_a_gradient_that_nobody_asks_for_costs_no_collective(answers: Answers) -> None:
    for answer in each_rank(answers, checks.frozen_operands_cost_nothing):
        assert answer["input"] == {"collectives": 0, "gradients": ["weight", "bias"]}
        assert answer["weight"] == {"collectives": 1, "gradients": ["input", "bias"]}
        assert answer["bias"] == {"collectives": 1, "gradients": ["input", "weight"]}


def test_linear_on_dtensors_is_one_node_and_no_view(answers: Answers) -> None:
    for answer in each_rank(answers, checks.one_node_of_history):
        assert answer["names"] == {"LinearBackward0": 1, "AccumulateGrad": 2}
        assert answer["after"] == {
            "ReluBackward0": 1,
            "LinearBackward0": 1,
            "AccumulateGrad": 2,
        }
        assert answer["gradient"]


def test_a_bias_of_more_dimensions_is_added_and_gets_its_gradient(answers: Answers) -> None:
    for answer in each_rank(answers, checks.bias_of_more_dimensions):
        assert answer == {"value": True, "gradient": True}


def test_autocast_casts_what_is_local(answers: Answers) -> None:
    for answer in each_rank(answers, checks.autocast):
        assert answer == {"dtype": "torch.bfloat16", "local": "torch.bfloat16"}


def test_the_derivative_has_a_derivative(answers: Answers) -> None:
    for answer in each_rank(answers, checks.second_derivative):
        assert answer["close"] == [True, True]


def test_a_gradient_in_terms_stays_in_terms(answers: Answers) -> None:
    for answer in each_rank(answers, checks.partial_gradient):
        assert answer["collectives"] == 0
        assert all("Partial" in placements for placements in answer["placements"])
        assert answer["close"]


def test_the_rules_registered_in_public_say_the_same(answers: Answers) -> None:
    for answer in each_rank(answers, checks.public_rules_alone):
        ours, theirs = answer["placements"]
        assert ours == theirs
        assert answer["close"]


@pytest.mark.parametrize("way", ["converted", "cured"])
def test_parallel_styles_keep_linear_whole(answers: Answers, way: str) -> None:
    for answer in each_rank(answers, checks.styles):
        assert answer[way]["value"]
        assert answer[way]["gradients"]
        assert answer[way]["names"]["LinearBackward0"] == 2
        assert "ViewBackward0" not in answer[way]["names"]


def test_a_compiled_uneven_batch_computes_the_same(answers: Answers) -> None:
    for answer in each_rank(answers, checks.compiled_uneven):
        assert answer == {"value": True, "gradients": [True, True, True]}
