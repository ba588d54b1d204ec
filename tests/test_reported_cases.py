"""The reported cases with the cures on: what each report asked for, and nothing else changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

import noalias
from tests.reported import (
    Case,
    Outcome,
    decoder_fills_outputs,
    ffn_inplace_relu,
    full_backward_hook_then_inplace,
    hook_set_before_inplace,
    nnunet_block,
    observable_base_is_kept,
    saved_output_still_raises,
    sliced_logits_temperature,
)


def cured(case: Case) -> Outcome:
    with noalias.enabled():
        return case()


def assert_same_bits(actual: list[Tensor | None], expected: list[Tensor | None]) -> None:
    assert len(actual) == len(expected)
    for left, right in zip(actual, expected, strict=True):
        assert left is not None
        assert right is not None
        assert left.numpy().tobytes() == right.numpy().tobytes()


def allocations(work: Callable[[], object]) -> list[int]:
    """Bytes of each allocation on the CPU while ``work`` runs."""
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profiler:
        work()
    events = profiler.profiler.kineto_results.events()
    return [event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0]


@pytest.mark.parametrize("case", [ffn_inplace_relu, nnunet_block, sliced_logits_temperature])
def test_hidden_base_leaves_no_copy_slices_and_gradients_stay_bit_identical(case: Case) -> None:
    stock, now = case(), cured(case)
    assert now.output is not None
    assert not noalias.graph.has_copy_slices(now.output)
    assert_same_bits(now.gradients, stock.gradients)


def test_sliced_logits_allocate_one_base_sized_buffer_in_backward() -> None:
    torch.manual_seed(0)
    head = nn.Linear(16, 50, bias=False)
    x = torch.randn(2, 9, 16, requires_grad=True)
    with noalias.enabled():
        logits = head(x)[:, :-1]
        logits.div_(0.7)
        loss = logits.log_softmax(-1).sum()
        sizes = allocations(loss.backward)
    base_bytes = 2 * 9 * 50 * 4
    assert sizes.count(base_bytes) == 1


def test_decoder_loop_keeps_its_gradients_bit_identical() -> None:
    assert_same_bits(cured(decoder_fills_outputs).gradients, decoder_fills_outputs().gradients)


def test_decoder_loop_allocates_in_proportion_to_its_steps() -> None:
    def backward_bytes(steps: int) -> int:
        outputs, x = torch.zeros(steps, 4, 16), torch.randn(steps, 4, 16, requires_grad=True)
        h = torch.zeros(4, 16)
        for t in range(steps):
            h = torch.tanh(h + x[t])
            outputs[t] = h
        return sum(allocations(outputs.square().sum().backward))

    with noalias.enabled():
        short, long = backward_bytes(64), backward_bytes(256)
    assert long <= 4.5 * short


def test_full_backward_hook_sees_the_gradient_of_the_layers_output() -> None:
    def out_of_place() -> Outcome:
        torch.manual_seed(0)
        layer, seen = nn.Linear(8, 4), list[Tensor]()
        layer.register_full_backward_hook(
            lambda module, grad_in, grad_out: seen.append(grad_out[0].clone())
        )
        x = torch.randn(3, 8, requires_grad=True)
        y = F.relu(layer(x))
        y.sum().backward()
        return Outcome(y, [x.grad, *(parameter.grad for parameter in layer.parameters()), *seen])

    assert_same_bits(cured(full_backward_hook_then_inplace).gradients, out_of_place().gradients)


def test_hook_set_before_an_inplace_operator_fires_once_with_the_gradient_before_it() -> None:
    now = cured(hook_set_before_inplace)
    *gradients, seen = now.gradients
    assert len(gradients) == 3
    assert_same_bits([seen], [torch.full((2, 3, 4), 2.0)])
    assert_same_bits(gradients, hook_set_before_inplace().gradients[:3])


def test_observable_base_keeps_its_history_in_every_bit() -> None:
    stock, now = observable_base_is_kept(), cured(observable_base_is_kept)
    assert now.output is not None
    assert_same_bits(now.gradients, stock.gradients)


def test_overwriting_a_saved_output_still_raises() -> None:
    assert cured(saved_output_still_raises).gradients == [None]
