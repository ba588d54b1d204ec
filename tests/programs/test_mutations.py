"""Broken cures are noticed, and the program that shows it shrinks to a few lines."""

from __future__ import annotations

import pytest

from tests.programs.campaign import compare, fails_like
from tests.programs.generate import generate
from tests.programs.mutations import MUTATIONS
from tests.programs.shrink import shrink
from tests.programs.statements import walk


@pytest.mark.parametrize("name", MUTATIONS)
def test_broken_cure_is_noticed_within_300_programs_and_shrinks(name: str) -> None:
    cures = f"broken:{name}"
    for index in range(300):
        program = generate(8, index)
        verdict = compare(program, cures)
        if verdict.kind == "mismatch":
            break
    else:
        pytest.fail(f"300 programs did not notice {name}")
    small = shrink(program, fails_like(verdict, cures), attempts=400)
    assert compare(small, cures).kind == "mismatch"
    assert sum(1 for _ in walk(small)) <= 9
