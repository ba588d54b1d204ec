"""PyTorch's own gradient checks pass and fail with the cures on as they do on stock PyTorch.

Here the first sample of some; all of all: ``python -m tests.checks``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from tests.checks import cases
from tests.checks.outcomes import PASSED, compare

OPERATORS = {"add", "mul", "sigmoid", "index_add", "clamp", "tril"}
MODULES = {"nn.Linear", "nn.Conv1d", "nn.InstanceNorm2d", "nn.GELU", "nn.MaxPool1d"}


def test_in_place_variants_pass_and_fail_as_on_stock() -> None:
    result = compare(cases.operators(1, OPERATORS.__contains__))

    assert result.differing == {}
    assert result.acted["hidden bases dropped"] > len(OPERATORS)
    assert result.acted["slices_updated"] > len(OPERATORS)
    assert result.outcomes["hidden_base: second"][PASSED] >= len(OPERATORS)


def test_modules_pass_and_fail_as_on_stock() -> None:
    result = compare(cases.modules(1, MODULES.__contains__))

    assert result.differing == {}
    assert result.acted["hidden bases dropped"] > 0
    assert result.outcomes["module, written: gradient"][PASSED] >= len(MODULES) - 1


@pytest.mark.long
def test_every_first_sample_passes_and_fails_as_on_stock() -> None:
    assert compare(cases.operators(1)).differing == {}
    assert compare(cases.modules(1)).differing == {}


def test_a_cure_with_wrong_gradients_would_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = False

    @contextmanager
    def cure() -> Iterator[None]:
        nonlocal wrong
        wrong = True
        yield
        wrong = False

    def target(x: Tensor) -> tuple[Tensor, Tensor]:
        written = x.clone()
        if wrong and written.requires_grad:
            written.register_hook(lambda gradient: gradient * 1.1)
        return written, written

    monkeypatch.setattr(cases, "TARGETS", {"hooked": target})
    result = compare(cases.operators(1, "mul".__eq__), cure)

    assert torch.is_grad_enabled()
    assert {where.split(", ")[-1] for where in result.differing} >= {"gradient"}
