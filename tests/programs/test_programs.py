"""Random programs show with the cures on what they show on stock PyTorch.

The long run: ``python -m tests.programs --count 20000 --seed 1``. A program it shrinks goes to
``kept/``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.campaign import compare
from tests.programs.cures import cure
from tests.programs.execute import execute
from tests.programs.generate import generate
from tests.programs.oracle import judge
from tests.programs.source import function_source
from tests.programs.statements import dumps, loads

KEPT = sorted((Path(__file__).parent / "kept").glob("*.json"))
ROOT = Path(__file__).parents[2]


def campaign(tmp_path: Path, *options: str) -> None:
    """Runs a campaign in a process of its own: a crash in it does not end the test run."""
    command = [sys.executable, "-m", "tests.programs", "--out", str(tmp_path), *options]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    shrunk = "\n".join(path.read_text(encoding="utf-8") for path in sorted(tmp_path.glob("*.py")))
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr[-2000:]}\n{shrunk}"


def test_300_programs_show_what_stock_shows(tmp_path: Path) -> None:
    campaign(tmp_path, "--count", "300", "--seed", "1", "--cures", "all")


def test_programs_that_run_at_once_in_threads_show_what_stock_shows(tmp_path: Path) -> None:
    campaign(tmp_path, "--count", "100", "--seed", "9", "--cures", "all", "--threads", "4")


@pytest.mark.long
def test_20000_programs_show_what_stock_shows(tmp_path: Path) -> None:
    campaign(tmp_path, "--count", "20000", "--seed", "2", "--cures", "all")


def test_stock_agrees_with_itself(tmp_path: Path) -> None:
    campaign(tmp_path, "--count", "100", "--seed", "3", "--cures", "none")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_kept_program_shows_what_stock_shows(path: Path) -> None:
    program = loads(path.read_text(encoding="utf-8"))
    verdict = compare(program, "all")
    assert verdict.kind in ("equal", "unaliased", "rounding"), "\n".join(
        map(str, verdict.differences)
    )


@pytest.mark.parametrize("index", range(20))
def test_program_survives_json(index: int) -> None:
    program = generate(4, index)
    assert loads(dumps(program)) == program
    assert function_source(loads(dumps(program))) == function_source(program)


def test_generation_depends_on_seed_and_index_only() -> None:
    generate(5, 0)
    assert dumps(generate(5, 1)) == dumps(generate(5, 1))
    assert dumps(generate(5, 1)) != dumps(generate(6, 1))


def test_judge_gives_equal_runs_no_difference() -> None:
    program = generate(7, 3)
    first, second = execute(program), execute(program)
    with cure("none")():
        assert judge(program, first, second).kind == "equal"
