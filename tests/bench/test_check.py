"""`benchmarks/check.py`: what counts as slower, and which commit is compared with."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

CHECK = Path(__file__).parents[2] / "benchmarks" / "check.py"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noalias_bench_check", CHECK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], str]:
    """A function that commits a change to `src` in a fresh repository and returns the commit."""
    monkeypatch.setattr(check, "ROOT", tmp_path)
    (tmp_path / "src").mkdir()

    def git(*words: str) -> str:
        names = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        done = subprocess.run(
            ["git", *names, *words], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "--quiet", "--initial-branch=main")

    def change(branch: str) -> str:
        if git("branch", "--show-current") != branch:
            git("checkout", "--quiet", "-b", branch)
        file = tmp_path / "src" / "a.py"
        file.write_text(file.read_text() + "\n" if file.exists() else "")
        git("add", "src")
        git("commit", "--quiet", "-m", "change")
        return git("rev-parse", "HEAD")

    return change


def test_minima_only_fall(check: ModuleType) -> None:
    best = {"a": 2.0}
    check.keep_minima(best, {"a": 3.0, "b": 1.0})
    check.keep_minima(best, {"a": 1.5})
    assert best == {"a": 1.5, "b": 1.0}


def test_more_than_the_tolerance_is_a_regression(check: ModuleType) -> None:
    before, after = {"a": 1.0, "b": 1.0}, {"a": 1.09, "b": 1.2}
    assert check.regressions(before, after, 0.10) == {"b": pytest.approx(0.2)}


def test_a_new_call_is_no_regression_and_is_reported_as_new(check: ModuleType) -> None:
    assert check.regressions({}, {"a": 1.0}, 0.10) == {}
    assert check.report({}, {"a": 1e-6}, "0" * 40).endswith("new")


def test_what_looked_slower_is_measured_again(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    here = iter([2.0, 1.0])
    monkeypatch.setattr(
        check, "measure", lambda tree: {"a": next(here) if tree == check.ROOT else 1.0}
    )
    assert check.compare(tmp_path, "0" * 40, 1, 0.10) == 0


def test_what_stays_slower_fails(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(check, "measure", lambda tree: {"a": 2.0 if tree == check.ROOT else 1.0})
    assert check.compare(tmp_path, "0" * 40, 1, 0.10) == 1


def test_a_branch_is_compared_with_where_it_left_main(
    check: ModuleType, repository: Callable[[str], str]
) -> None:
    left = repository("main")
    repository("topic")
    repository("topic")
    assert check.merge_base() == left


def test_main_is_compared_with_the_commit_before(
    check: ModuleType, repository: Callable[[str], str]
) -> None:
    first = repository("main")
    repository("main")
    assert check.merge_base() == first


def test_a_changed_tree_on_main_is_compared_with_its_commit(
    check: ModuleType, repository: Callable[[str], str]
) -> None:
    repository("main")
    last = repository("main")
    (check.ROOT / "src" / "a.py").write_text("changed")
    assert check.merge_base() == last


def test_a_first_commit_has_nothing_to_be_compared_with(
    check: ModuleType, repository: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    repository("main")
    assert check.main([]) == 2
    assert "nothing to compare with; name a commit: --base REF" in capsys.readouterr().err


def test_a_commit_that_does_not_exist_is_named(
    check: ModuleType, repository: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    repository("main")
    assert check.main(["--base", "nowhere"]) == 2
    assert "'nowhere' names no commit here" in capsys.readouterr().err
