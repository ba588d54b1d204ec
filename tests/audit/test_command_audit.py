"""``noalias audit`` as people run it: on programs that behave, and on those that do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noalias.audit.report import as_json

PAYS = """
import torch
import torch.nn.functional as F

x = torch.randn(2, 3, 8, 8, requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(STEPS):
    F.leaky_relu(F.instance_norm(x), inplace=True).sum().backward()
    optimizer.step()
"""

CLEAN = "import torch\ntorch.ones(2, requires_grad=True).exp().sum().backward()\n"

pytestmark = pytest.mark.usefixtures("core")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that pays for an alias in three steps."""
    return script(tmp_path, PAYS.replace("STEPS", "3"))


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def audit(*words: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, "-m", "noalias", "audit", *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_findings_exit_with_1_and_name_the_line(program: Path, tmp_path: Path) -> None:
    done = audit(program, folder=tmp_path)

    assert (done.returncode, done.stderr) == (1, "")
    assert f"NA101  {program}:8" in done.stdout.replace("\n", "")
    assert "the price of its aliases is measured from 8 on" in " ".join(done.stdout.split())


def test_clean_program_exits_with_0(tmp_path: Path) -> None:
    done = audit(script(tmp_path, CLEAN), folder=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert "No line of this step pays for an alias." in done.stdout


def test_program_sees_its_own_arguments_and_main(tmp_path: Path) -> None:
    text = "import sys\nprint(sys.argv[1:], __name__, __file__)\n"
    path = script(tmp_path, text)

    done = audit("--format", "json", "-o", "report.json", path, "--lr", "1", folder=tmp_path)

    assert done.stdout == f"['--lr', '1'] __main__ {path}\n"
    report = as_json.read(tmp_path / "report.json")
    assert report.argv == (str(path), "--lr", "1")


def test_price_of_a_long_enough_program_is_measured_and_exact_predictions_hold(
    tmp_path: Path,
) -> None:
    path = script(tmp_path, PAYS.replace("STEPS", "20"))

    done = audit("--format", "json", path, folder=tmp_path)

    report = as_json.loads(done.stdout[done.stdout.index("{") :])
    assert done.returncode == 1
    assert report.price is not None
    assert report.price.stock.copies - report.price.cured.copies == 4
    assert report.price.runs >= 3
    borne_out = {p.quantity: p.borne_out for p in report.predictions}
    assert borne_out["copies"]
    assert borne_out["bytes_moved"]
    assert report.memory is not None
    assert max(size for _, size in report.memory.before) == report.price.stock.peak_bytes
    owed = [piece for piece in report.timeline if piece.kind == "copy" and piece.cause is not None]
    assert len(owed) == 4
    assert {report.timeline[piece.cause or 0].line for piece in owed} == {8}
    assert report.findings[0].count == 1


def test_steps_ends_the_program(tmp_path: Path) -> None:
    path = script(tmp_path, PAYS.replace("STEPS", "1000") + "print('not reached')\n")

    done = audit("--steps", "2", "--format", "json", path, folder=tmp_path)

    report = as_json.loads(done.stdout)
    assert report.steps.seen == 2
    assert "the program was stopped after 2 steps, as --steps asked" in report.notes


def test_baseline_leaves_out_what_it_knows(program: Path, tmp_path: Path) -> None:
    first = audit("--write-baseline", "known.json", program, folder=tmp_path)
    second = audit("--baseline", "known.json", program, folder=tmp_path)

    assert (first.returncode, second.returncode) == (0, 0)
    assert "1 known finding left out" in second.stdout


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["nothing.py"], "can't open 'nothing.py': no such file"),
        (["-m", "no_such_module"], "no module named 'no_such_module'"),
        ([], "name a script to run"),
        (["--select", "XY", "train.py"], "no code starts with 'XY'"),
        (["--steps", "0", "train.py"], "--steps is 0"),
        (["--baseline", "train.py", "train.py"], "train.py"),
        (["-o", "missing/report.html", "train.py"], "no such folder"),
        (["--demo", "train.py"], "--demo has a program of its own"),
        (["--merge", "train.py"], "train.py"),
        (["--merge", "none.json"], "cannot read none.json: No such file"),
        (["--baseline", "none.json", "train.py"], "cannot read none.json: No such file"),
    ],
)
def test_wrong_use_exits_with_2_says_why_and_runs_nothing(
    words: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from noalias import cli

    script(tmp_path, "raise SystemExit('the program ran')\n")
    monkeypatch.chdir(tmp_path)

    assert cli.main(["audit", *words]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["html", "trace"])
def test_a_page_is_not_written_to_a_terminal_and_nothing_runs(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from noalias import cli

    path = script(tmp_path, "raise SystemExit('the program ran')\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    assert cli.main(["audit", "--format", kind, str(path)]) == 2
    assert f"--format {kind} is not for a terminal; add -o FILE" in capsys.readouterr().err


def test_program_that_raises_keeps_its_traceback_and_what_was_found(tmp_path: Path) -> None:
    path = script(tmp_path, PAYS.replace("STEPS", "2") + "raise KeyError('lost')\n")

    done = audit(path, folder=tmp_path)
    plain = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 2
    assert done.stderr == plain.stderr
    assert "NA101" in done.stdout
    assert "the program failed (exit code 1)" in done.stdout


def test_program_that_calls_sys_exit_is_reported_with_its_code(tmp_path: Path) -> None:
    path = script(tmp_path, PAYS.replace("STEPS", "1") + "import sys\nsys.exit(3)\n")

    done = audit(path, folder=tmp_path)

    assert done.returncode == 2
    assert "the program failed (exit code 3)" in done.stdout
    assert "NA101" in done.stdout


def test_child_processes_report_nothing_and_the_parent_says_so(tmp_path: Path) -> None:
    text = PAYS.replace("STEPS", "1") + "import os\nif os.fork(): os.wait()\n"
    path = script(tmp_path, text)

    done = audit(path, folder=tmp_path)

    assert done.stdout.count("noalias audit") == 1
    assert "the program forked 1 time; the child processes were not audited" in done.stdout


def test_program_without_backward_is_told_so(tmp_path: Path) -> None:
    done = audit(script(tmp_path, "import torch\ntorch.ones(2).add_(1)\n"), folder=tmp_path)

    assert done.returncode == 0
    assert "never called backward" in done.stdout


def test_ranks_write_a_report_each_and_rank_0_merges_them(program: Path, tmp_path: Path) -> None:
    rank = {"WORLD_SIZE": "2", "RANK": "1"}
    second = audit("--format", "json", "-o", "all.json", program, folder=tmp_path, **rank)
    rank["RANK"] = "0"
    first = audit("--format", "json", "-o", "all.json", program, folder=tmp_path, **rank)

    assert (first.returncode, second.returncode) == (0, 0)
    assert sorted(path.name for path in tmp_path.glob("all*")) == [
        "all.json",
        "all.rank0.json",
        "all.rank1.json",
    ]
    (finding,) = as_json.read(tmp_path / "all.json").findings
    assert finding.ranks == (0, 1)

    merged = audit("--merge", "all.rank0.json", "all.rank1.json", folder=tmp_path)
    assert merged.returncode == 1
    assert merged.stdout.count("NA101") == 1


@pytest.mark.parametrize("number", ["0", "1"])
def test_a_rank_that_fails_writes_what_it_found_and_waits_for_nobody(
    number: str, tmp_path: Path
) -> None:
    path = script(tmp_path, PAYS.replace("STEPS", "2") + "raise KeyError('lost')\n")

    rank = {"WORLD_SIZE": "2", "RANK": number}
    done = audit("-o", "all.txt", path, folder=tmp_path, **rank)

    assert done.returncode == 2
    own = f"all.rank{number}.json"
    assert f"the program failed on rank {number}" in done.stderr
    assert own in done.stderr
    assert not (tmp_path / "all.txt").exists()
    shown = audit("--merge", own, folder=tmp_path)
    assert shown.returncode == 1
    assert "NA101" in shown.stdout
    assert "the program failed (exit code 1)" in shown.stdout


def test_demo_shows_every_code(tmp_path: Path) -> None:
    done = audit("--demo", folder=tmp_path)

    assert done.returncode == 0, done.stderr
    page = tmp_path / "noalias-demo.html"
    assert str(page) in done.stdout.replace("\n", "")
    codes = ("NA101", "NA102", "NA201", "NA202", "NA301", "NA302", "NA303", "NA401")
    assert [code for code in codes if code not in done.stdout] == []
    assert "<html" in page.read_text(encoding="utf-8")


def test_json_on_standard_output_is_json_alone(tmp_path: Path) -> None:
    done = audit("--format", "json", script(tmp_path, CLEAN), folder=tmp_path)

    assert json.loads(done.stdout)["schema_version"] == 1
