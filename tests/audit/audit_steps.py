"""One step under audit, for the tests that ask what was found."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import noalias
from noalias.audit.finding import Finding
from noalias.audit.result import Report


def audited(step: Callable[[], object], **options: object) -> Report:
    with noalias.audit(**options) as report:  # type: ignore[arg-type]
        step()
    return report


def only(report: Report) -> Finding:
    assert len(report.findings) == 1, [finding.place for finding in report.findings]
    return report.findings[0]


def codes(report: Report) -> list[str]:
    return sorted(finding.code for finding in report.findings)


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)
