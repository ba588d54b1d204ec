"""What a result says about the machine that made it."""

from __future__ import annotations

import platform

import torch

import noalias
from noalias.bench.machine import describe


def test_versions_are_those_that_ran() -> None:
    machine = describe(torch.device("cpu"))
    assert machine.torch == torch.__version__
    assert machine.python == platform.python_version()
    assert machine.noalias == noalias.__version__
    assert (machine.device, machine.cuda) == ("cpu", None)


def test_threads_are_those_in_force() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert describe(torch.device("cpu")).threads == 1
    finally:
        torch.set_num_threads(before)


def test_at_least_one_core_can_be_used() -> None:
    assert describe(torch.device("cpu")).cores >= 1
