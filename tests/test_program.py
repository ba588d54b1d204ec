"""Somebody's program runs as python would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noalias.program import Program, ProgramNotFound

REPORT = """
import sys, json, pathlib
main = sys.modules["__main__"].__dict__ is globals()
print(json.dumps([sys.argv, __name__, __file__, sys.path[0], main]))
"""


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=cwd, check=False, timeout=120
    )


def both(tmp_path: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], ...]:
    """The same program under python and under noalias run."""
    return (
        python(*words, cwd=tmp_path),
        python("-m", "noalias", "run", *words, cwd=tmp_path),
    )


@pytest.mark.parametrize("words", [["job.py"], ["job.py", "--lr", "0.1", "-m", "x"]])
def test_script_sees_the_arguments_main_and_path_of_python(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "job.py").write_text(REPORT)
    plain, ours = both(tmp_path, *words)

    assert ours.returncode == plain.returncode == 0
    assert ours.stdout == plain.stdout


def test_module_sees_the_arguments_and_main_of_python(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "job.py").write_text("from . import __name__ as up\nprint(up)\n" + REPORT)
    plain, ours = both(tmp_path, "-m", "package.job", "--lr", "0.1")

    assert ours.returncode == plain.returncode == 0
    assert ours.stdout == plain.stdout


@pytest.mark.parametrize(
    ("body", "code"),
    [("import sys; sys.exit(7)", 7), ("import sys; sys.exit('no')", 1), ("pass", 0)],
)
def test_exit_code_is_the_programs(tmp_path: Path, body: str, code: int) -> None:
    (tmp_path / "job.py").write_text(body)
    plain, ours = both(tmp_path, "job.py")

    assert plain.returncode == ours.returncode == code
    assert ours.stderr == plain.stderr


@pytest.mark.parametrize(
    "body", ["def f():\n    raise KeyError('lost')\nf()\n", "x = (\n", "import nothing_there\n"]
)
def test_traceback_is_the_programs_own(tmp_path: Path, body: str) -> None:
    (tmp_path / "job.py").write_text(body)
    plain, ours = both(tmp_path, "job.py")

    assert plain.returncode == ours.returncode == 1
    assert ours.stderr.replace(str(tmp_path) + "/", "") == plain.stderr.replace(
        str(tmp_path) + "/", ""
    )


def test_objects_of_main_can_be_pickled_and_children_spawned(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import multiprocessing as mp\n"
        "class Thing: pass\n"
        "def child(thing): print(type(thing).__name__)\n"
        "if __name__ == '__main__':\n"
        "    p = mp.get_context('spawn').Process(target=child, args=(Thing(),))\n"
        "    p.start(); p.join(); raise SystemExit(p.exitcode)\n"
    )
    _, ours = both(tmp_path, "job.py")

    assert ours.returncode == 0, ours.stderr
    assert ours.stdout == "Thing\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere.py"], "can't open 'nowhere.py'"),
        (["-m", "nowhere"], "no module named 'nowhere'"),
        (["-m"], "-m needs the name of a module"),
        ([], "name a script to run"),
        (["--cures", "hiden", "job.py"], "no cure 'hiden'"),
    ],
)
def test_nothing_to_run_is_a_usage_error(tmp_path: Path, words: list[str], message: str) -> None:
    (tmp_path / "job.py").touch()
    done = python("-m", "noalias", "run", *words, cwd=tmp_path)

    assert done.returncode == 2
    assert message in done.stderr


def test_cures_are_on_and_status_is_told_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import torch\nx = torch.ones(4, requires_grad=True)\n"
        "v = (x * 2).view(2, 2)\nv.mul_(3)\nprint(v._is_view())\n"
    )
    done = python("-m", "noalias", "run", "--status", "job.py", cwd=tmp_path)

    assert done.stdout == "False\n"
    assert "1 seen, 1 cured" in done.stderr


def test_a_folder_without_a_main_module_is_no_program(tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFound, match=r"is a folder without a __main__\.py"):
        Program(str(tmp_path)).check()
    (tmp_path / "__main__.py").write_text("", encoding="utf-8")
    Program(str(tmp_path)).check()
