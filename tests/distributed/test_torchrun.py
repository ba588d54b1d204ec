"""Programs started by torchrun: ``noalias build`` once, then many ranks that only read it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from noalias.native.core import Core
from tests.distributed.support import listing

ROOT = Path(__file__).parents[2]
RANKS = 4


def environment(**changed: str) -> dict[str, str]:
    """This one's, without what says where the core is."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NOALIAS_CACHE", "NOALIAS_PREBUILT")}
    source = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return {**kept, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", **changed}


def torchrun(*arguments: str | Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    starter = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*starter, f"--nproc-per-node={RANKS}", *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path, mode in modes.items():
        path.chmod(mode & 0o555)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.parametrize("kept", ["in the home", "in an image"])
def test_ranks_only_read_what_noalias_build_has_built(
    core: Core, tmp_path: Path, kept: str
) -> None:
    home, answers = tmp_path / "home", tmp_path / "answers"
    image = tmp_path / "image"
    place = image if kept == "in an image" else home / ".cache" / "noalias"
    answers.mkdir()
    home.mkdir(mode=0o700)
    # The build itself is a copy of this session's; ``noalias build`` says that nothing is missing.
    built = Path(core.__file__).parent
    shutil.copytree(built, place / built.parent.name / built.name)
    place.chmod(0o700)
    env = environment(HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"))
    where = ["-o", str(image)] if kept == "in an image" else []
    command = [sys.executable, "-m", "noalias", "build", *where]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300)
    assert "already there" in said.stdout
    if kept == "in an image":
        env["NOALIAS_PREBUILT"] = str(image)
    before = listing(place)

    with read_only(home), read_only(place):
        program = ROOT / "tests" / "distributed" / "torchrun_program.py"
        run = torchrun(program, answers, env=env)

    assert run.returncode == 0, run.stderr
    assert listing(place) == before
    seen = [json.loads(path.read_text()) for path in sorted(answers.iterdir())]
    assert len(seen) == RANKS
    assert {Path(answer["library"]).is_relative_to(place) for answer in seen} == {True}
    assert {answer["sum"] for answer in seen} == {5.0 * 3 * 6 * 4}
    # A bad shape: the same errors on every rank, none of them left in a collective.
    assert [answer["messages"] for answer in seen] == [seen[0]["messages"]] * RANKS
    stock, ours = seen[0]["messages"]
    assert stock != "no error"
    assert "[6, 3]" in ours


def test_the_example_of_sequence_parallel_agrees_with_one_process(core: Core) -> None:
    example = ROOT / "examples" / "sequence_parallel.py"
    env = environment(NOALIAS_PREBUILT=str(Path(core.__file__).parents[2]))
    run = torchrun(example, "--steps", "6", env=env)
    assert run.returncode == 0, run.stderr
    first, last = map(float, re.findall(r"loss: ([\d.]+) at first, ([\d.]+) after", run.stdout)[0])
    assert last < first
    difference = re.search(r"largest difference from one process: (\S+)", run.stdout)
    assert difference is not None
    # In float32, after Adam has divided by the roots of squared gradients.
    assert float(difference[1]) < 1e-4
    assert "collectives in forward: 4 all_gather_into_tensor\n" in run.stdout
    assert "collectives in backward: 4 reduce_scatter_tensor\n" in run.stdout
    assert "of these in linear: 0\n" in run.stdout
