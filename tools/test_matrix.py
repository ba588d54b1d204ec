"""Run the tests on every supported PyTorch, each in an environment of its own; write the table.

    python tools/test_matrix.py                        # all versions: makes .matrix/VERSION
    python tools/test_matrix.py --version 2.15.0 --python 2.15.0=/path/to/python -- tests/linear

Results are kept in benchmarks/versions.json; docs/versions.md is written from them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ["2.9.1", "2.11.0", "2.13.0", "2.14.1", "2.15.0"]
RESULTS = ROOT / "benchmarks" / "versions.json"
PAGE = ROOT / "docs" / "versions.md"


def environment(version: str) -> Path:
    """The Python of a virtual environment with that PyTorch and what the tests need."""
    folder = ROOT / ".matrix" / version
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet", f"torch=={version}", "-e"]
        subprocess.run([*install, f"{ROOT}[test,bench]"], check=True)
    return python


def run(version: str, python: Path, tests: list[str]) -> dict[str, object]:
    """Run the suite; the counts of its outcomes."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [str(python), "-m", "pytest", "-q", f"--junitxml={report}", *tests]
        settings = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(command, cwd=ROOT, env=settings, check=False)
        if not report.exists():
            raise SystemExit(f"test_matrix: pytest on {version} ended with {done.returncode}")
        suite = ET.parse(report).getroot().find("testsuite")
        assert suite is not None
        count = {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    torch = subprocess.run(
        [str(python), "-c", "import torch; print(torch.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    return {
        "torch": torch,
        "passed": count["tests"] - failed - count["skipped"],
        "failed": failed,
        "skipped": count["skipped"],
        "tests": " ".join(tests) or "all",
        "date": date.today().isoformat(),
    }


def page(results: dict[str, dict[str, object]]) -> str:
    """docs/versions.md."""
    lines = [
        "# Versions",
        "",
        "noalias supports PyTorch 2.9 to 2.15. The suite was run on these, each in an environment",
        "of its own, by `make test-matrix` (`python tools/test_matrix.py` for some of the tests):",
        "",
        "| PyTorch | tests | passed | failed | skipped | on |",
        "|---|---|---|---|---|---|",
    ]
    for version in VERSIONS:
        row = results.get(version)
        if row is None:
            lines.append(f"| {version} | not run | | | | |")
        else:
            cells = [row[key] for key in ("torch", "tests", "passed", "failed", "skipped", "date")]
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += [
        "",
        "A row is as old as its date, and the suite grows.",
        "",
        *(f"- {version}: {row['note']}" for version, row in results.items() if "note" in row),
        "",
        "Linux, x86-64, Python 3.11, CPU. Not tried: macOS, Windows, other processors; the kernels",
        "for CUDA, MPS and XPU are registered through the same keys and have not run on a device.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="append", choices=VERSIONS, help="only this one")
    parser.add_argument(
        "--python", action="append", default=[], metavar="VERSION=PATH", help="an environment"
    )
    parser.add_argument("tests", nargs="*", help="arguments of pytest (default: the whole suite)")
    args = parser.parse_args()
    given = dict(pair.split("=", 1) for pair in args.python)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = False
    for version in args.version or VERSIONS:
        python = Path(given[version]) if version in given else environment(version)
        results[version] = run(version, python, args.tests)
        failed = failed or bool(results[version]["failed"])
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
