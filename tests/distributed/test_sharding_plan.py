"""Which rules are taken together, and what bringing operands there costs."""

from __future__ import annotations

import pytest
from torch.distributed.tensor import Replicate, Shard

from noalias.bench.placement_cases import placements, short
from noalias.linear.sharding_plan import Operand, Plan, plan, redistribution


def operand(shape: tuple[int, ...], text: str) -> Operand:
    return Operand(shape, placements(text), itemsize=4)


def linear(
    mesh: tuple[int, ...], x: str, w: str, b: str, shape: tuple[int, ...] = (6, 8, 16)
) -> Plan:
    operands = (operand(shape, x), operand((32, shape[-1]), w), operand((32,), b))
    return plan("linear", len(shape), mesh, operands, ((*shape[:-1], 32),))


def backward(mesh: tuple[int, ...], x: str | None, g: str, w: str | None) -> Plan:
    operands = (
        None if x is None else operand((6, 8, 16), x),
        operand((6, 8, 32), g),
        None if w is None else operand((32, 16), w),
    )
    results = (
        None if w is None else (6, 8, 16),
        None if x is None else (32, 16),
        (32,),
    )
    return plan("linear_backward", 3, mesh, operands, results)


@pytest.mark.parametrize(
    ("x", "w", "b", "output"),
    [
        ("S0", "R", "R", "S0"),
        ("S1", "R", "R", "S1"),
        ("R", "S0", "S0", "S2"),
        ("R", "S0", "R", "S2"),
        ("S2", "S1", "R", "P"),
        ("R", "S1", "R", "P"),
        ("S2", "R", "R", "P"),
        ("P", "R", "R", "P"),
        ("P", "R", "P", "P"),
        ("R", "R", "R", "R"),
    ],
)
def test_one_dimension_without_communication(x: str, w: str, b: str, output: str) -> None:
    found = linear((4,), x, w, b)
    assert found.bytes == 0
    assert short(found.results[0]) == output


def test_every_mesh_dimension_takes_a_rule_of_its_own() -> None:
    found = linear((2, 2, 2), "S0 S1 S2", "R R S1", "R R R")
    assert found.rules == ("batch", "batch", "row")
    assert found.bytes == 0
    assert found.bias_once == (2,)
    assert short(found.results[0]) == "S0 S1 P"


def test_a_replicated_bias_is_added_by_one_term_and_a_partial_one_by_all() -> None:
    assert linear((4,), "S2", "S1", "R").bias_once == (0,)
    assert linear((4,), "S2", "S1", "P").bias_once == ()


def test_only_the_small_operand_is_gathered_when_nothing_fits() -> None:
    few_rows = linear((4,), "S0", "S0", "S0", shape=(4, 1, 1024))
    many_rows = linear((4,), "S0", "S0", "R", shape=(4096, 64, 16))
    assert few_rows.rules == ("column",)
    assert many_rows.rules == ("batch",)
    assert few_rows.bytes > 0
    assert many_rows.bytes > 0


def test_a_gradient_follows_the_shards_of_the_batch() -> None:
    found = backward((2, 2), "S0 S1", "S0 S1", "R R")
    assert found.bytes == 0
    assert [short(result) for result in found.results] == ["S0 S1", "P P", "P P"]


def test_a_replicated_gradient_is_cut_to_the_shards_that_are_there() -> None:
    found = backward((4,), "S0", "R", "R")
    assert found.bytes == 0
    assert found.rules == ("batch",)


def test_an_operand_that_is_not_needed_has_no_say() -> None:
    found = backward((4,), None, "S0", "R")
    assert found.operands[0] is None
    assert found.bytes == 0


def test_cutting_is_free_after_the_shards_that_are_there_and_not_before() -> None:
    mesh = (2, 2)
    after = redistribution(operand((8, 8), "S1 R"), (Shard(1), Shard(1)), mesh)
    before = redistribution(operand((8, 8), "R S1"), (Shard(1), Shard(1)), mesh)
    assert after.collectives == 0
    assert before.collectives > 0


def test_a_mesh_dimension_of_one_device_costs_nothing() -> None:
    cost = redistribution(operand((8, 8), "S0 S1"), (Replicate(), Shard(1)), (1, 4))
    assert cost.bytes == 0
    assert cost.collectives == 0


def test_bytes_are_those_of_a_ring() -> None:
    whole = 8 * 8 * 4
    gather = redistribution(operand((8, 8), "S0"), (Replicate(),), (4,))
    reduce = redistribution(operand((8, 8), "P"), (Replicate(),), (4,))
    scatter = redistribution(operand((8, 8), "P"), (Shard(0),), (4,))
    turn = redistribution(operand((8, 8), "S0"), (Shard(1),), (4,))
    assert gather.bytes == whole * 3 / 4
    assert reduce.bytes == 2 * whole * 3 / 4
    assert scatter.bytes == whole * 3 / 4
    assert turn.bytes == whole / 4 * 3 / 4
