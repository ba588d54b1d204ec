"""`noalias bench` as a user meets it: exit codes, messages, files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noalias import cli
from noalias.bench import picture, three_way
from noalias.bench.three_way import ThreeWay, Workload


def _bench(*words: str) -> int:
    return cli.main(["bench", *words])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Workload, int]]:
    """What the command asks the three-way table to measure; nothing is measured."""
    seen: list[tuple[Workload, int]] = []

    def run(workload: Workload, *, rounds: int, progress: object) -> ThreeWay:
        seen.append((workload, rounds))
        return ThreeWay(workload, ())

    monkeypatch.setattr(three_way, "run", run)
    return seen


TINY = ("three-way", "--shape", "2x3x8", "--rounds", "1")


def test_text_names_the_machine_and_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(*TINY) == 0
    printed = capsys.readouterr().out
    for part in ("torch", "before", "stock", "workaround", "after", "2 × 3 × 8 to 8 features"):
        assert part in printed


def test_json_has_a_schema_the_machine_and_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench(*TINY, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "noalias-bench/1"
    assert set(document["machine"]) >= {"processor", "cores", "threads", "load", "device"}
    (table,) = document["tables"].values()
    assert table["workload"]["shape"] == [2, 3, 8]
    assert set(table["rows"][0]["counts"]) == {"copies", "allocated_bytes", "peak_bytes"}
    assert set(table["rows"][0]["time"]) == {"min_s", "median_s", "rounds"}


def test_results_go_to_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bench.json"
    assert _bench(*TINY, "--format", "json", "-o", str(target)) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text())["tables"].keys() == {"three-way"}


def test_a_table_in_a_file_is_as_wide_as_it_needs(tmp_path: Path) -> None:
    target = tmp_path / "bench.txt"
    assert _bench(*TINY, "-o", str(target)) == 0
    assert "…" not in target.read_text()


@pytest.mark.usefixtures("asked")
def test_a_table_is_never_squeezed_into_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    assert _bench("three-way") == 0
    assert "allocated" in capsys.readouterr().out


def test_options_reach_the_workload(asked: list[tuple[Workload, int]]) -> None:
    options = "--shape 2,8 --features 5 --layers 2 --dtype bfloat16 --activation silu --rounds 3"
    assert _bench("three-way", *options.split()) == 0
    expected = Workload((2, 8), 5, dtype="bfloat16", activation="silu", layers=2)
    assert asked == [(expected, 3)]


def test_a_preset_names_its_shape(asked: list[tuple[Workload, int]]) -> None:
    assert _bench("three-way", "--preset", "seed") == 0
    assert asked[0][0] == Workload((64, 64, 64, 1000), 1000)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shape", "0x3"], "--shape: 0x3 has no elements"),
        (["--shape", "big"], "--shape: 'big' is not a shape; give extents like 64x64x64x1000"),
        (["--dtype", "int8"], "--dtype: 'int8' is not known; choose from float32"),
        (["--activation", "step"], "--activation: 'step' is not known; choose from relu"),
        (["--preset", "huge"], "--preset: 'huge' is not known; choose from quick, seed"),
        (["--rounds", "0"], "--rounds: 0 is too small; give 1 or more"),
        (["--device", "gpu"], "--device: 'gpu' is no device"),
        (["everything"], "'everything' is not known; choose from three-way"),
        (["-o", "/nonexistent/file"], "-o/--output: the folder of /nonexistent/file does not"),
        (["hot-path", "--picture", "a.png"], "there is no picture of hot-path; add three-way"),
    ],
)
def test_bad_input_is_refused_with_value_reason_and_fix(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _bench(*words) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("asked")
def test_a_picture_without_matplotlib_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    asked: list[tuple[Workload, int]],
) -> None:
    def missing(*_: object) -> None:
        raise picture.PictureUnavailable("pip install 'noalias[bench]'")

    monkeypatch.setattr(picture, "figure", missing)
    assert _bench("three-way", "--picture", str(tmp_path / "a.png")) == 2
    assert "pip install 'noalias[bench]'" in capsys.readouterr().err
    assert asked == []


def test_a_workload_that_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> ThreeWay:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ...")

    monkeypatch.setattr(three_way, "run", run)
    assert _bench("three-way", "--preset", "seed") == 2
    assert "64x64x64x1000 with 1000 features (float32) does not fit" in capsys.readouterr().err


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> ThreeWay:
        raise RuntimeError("something else")

    monkeypatch.setattr(three_way, "run", run)
    assert _bench("three-way") == 2
    assert "something else" in capsys.readouterr().err


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    target = tmp_path / "bench.svg"
    assert _bench(*TINY, "--picture", str(target)) == 0
    assert target.read_text().startswith("<?xml")


def test_help_lists_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert _bench("--help") == 0
    printed = capsys.readouterr().out
    for name in ("three-way", "hot-path", "inplace", "growth", "models", "overhead", "seed"):
        assert name in printed
