"""Run PyTorch's checks on stock PyTorch and with the cures on, and compare what they say."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch.autograd import gradcheck, gradgradcheck

import noalias
from tests.checks.cases import Case

PASSED = "passed"
NOT_SUPPORTED = "not supported"


def gradient(case: Case, **further: bool) -> None:
    gradcheck(case.function, case.inputs, fast_mode=True, nondet_tol=case.nondeterminism, **further)


def batched(case: Case) -> None:
    gradient(case, check_batched_grad=True)


def second(case: Case) -> None:
    gradgradcheck(
        case.function,
        case.inputs,
        fast_mode=True,
        nondet_tol=case.nondeterminism,
        check_batched_grad=case.batched_second,
    )


def forward(case: Case) -> None:
    gradient(
        case,
        check_forward_ad=True,
        check_backward_ad=False,
        check_undefined_grad=False,
        check_batched_forward_grad=case.batched_forward,
    )


CHECKS: dict[str, tuple[Callable[[Case], None], Callable[[Case], bool]]] = {
    "gradient": (gradient, lambda case: True),
    "batched": (batched, lambda case: case.batched),
    "second": (second, lambda case: case.second),
    "forward": (forward, lambda case: case.forward),
}


@dataclass
class Comparison:
    """What the checks said.

    Attributes:
        outcomes: by "kind: check", how often each outcome came; an error counts as ``failed``.
        failed: "name, kind, check" of what fails on stock PyTorch, with its error.
        differing: the same of what ends otherwise with the cures on, with both.
        acted: how often each cure acted, by its counter.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    differing: dict[str, tuple[str, str]] = field(default_factory=dict)
    acted: Counter[str] = field(default_factory=Counter)


def outcome(check: Callable[[Case], None], case: Case) -> str:
    """``passed``, or the error and the first line of what it says."""
    torch.manual_seed(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the samples' own: deprecations, beta features
            check(case)
    except Exception as error:  # whatever it is, it is compared to stock's
        lines = str(error).strip().splitlines()
        return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
    return PASSED


def compare(
    cases: Iterable[Case], cures: Callable[[], AbstractContextManager[None]] = noalias.enabled
) -> Comparison:
    """Every check of every case, on stock PyTorch and then with `cures`."""
    result = Comparison()
    for case in cases:
        for name, (check, supported) in CHECKS.items():
            counter = result.outcomes.setdefault(f"{case.kind}: {name}", Counter())
            if not supported(case) or not case.inputs:
                counter[NOT_SUPPORTED] += 1
                continue
            stock = outcome(check, case)
            before = counts()
            with cures():
                cured = outcome(check, case)
            result.acted += counts() - before
            counter[PASSED if stock == PASSED else "failed"] += 1
            where = f"{case.name} {case.number}, {case.kind}, {name}"
            if stock != PASSED:
                result.failed[where] = stock
            if stock != cured:
                result.differing[where] = (stock, cured)
    return result


def counts() -> Counter[str]:
    status = noalias.status()
    return Counter({"hidden bases dropped": status.cured, **status.counts})
