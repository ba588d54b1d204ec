"""The wheel carries all the package needs: it works where there is no checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Environment:
    """A fresh virtual environment with the wheel in it, and a folder to work in."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def run(self, words: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(self.bin / words[0]), *words[1:]],
            cwd=self.folder,
            env=kept | {"OMP_NUM_THREADS": "1"} | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def python(self, code: str, **variables: str) -> str:
        done = self.run(["python", "-c", code], **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout


def checked(words: Sequence[str | Path]) -> None:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    checked([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder])
    [path] = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    checked([sys.executable, "-m", "venv", "--without-pip", folder])
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    checked([sys.executable, "-m", "pip", "--python", python, *install])
    # PyTorch and what else the package requires come from the environment of this test. Editable
    # installs there stay behind: a path named in a .pth file is no site folder of its own.
    [site] = (folder / "lib").glob("python*/site-packages")
    (site / "shared.pth").write_text(f"{Path(torch.__file__).parent.parent}\n")
    return Environment(folder)


def test_wheel_fits_every_python_and_platform(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")


def test_wheel_holds_the_sources_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    here = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src" / "noalias").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }

    assert names == here
    assert "noalias/py.typed" in names
    assert any(name.startswith("noalias/native/csrc/") for name in names)


def test_wheel_names_its_license_and_needs_only_pytorch_rich_and_ninja(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = archive.read(name).decode().splitlines()

    assert "License-Expression: BSD-3-Clause" in lines
    needed = [
        line for line in lines if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert sorted(line.split()[1] for line in needed) == ["ninja>=1.11", "rich>=13.7", "torch>=2.9"]


def test_installed_package_is_the_wheels(environment: Environment) -> None:
    path = environment.python("import noalias; print(noalias.__file__)")

    assert Path(path.strip()).is_relative_to(environment.folder)


@pytest.mark.usefixtures("core")
def test_doctor_finds_nothing_wrong(environment: Environment) -> None:
    done = environment.run(["noalias", "doctor", "--format", "json"])

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    # The sources in the wheel are those of the checkout, so is the core they make.
    assert report["sections"]["core"]["state"] == "loads"


LINEAR = """
import torch, noalias
x = torch.randn(2, 3, 4, requires_grad=True)
layer = torch.nn.Linear(4, 5)
y = noalias.linear(x, layer.weight, layer.bias)
y.relu_().sum().backward()
torch.testing.assert_close(y, torch.nn.functional.linear(x, layer.weight, layer.bias).relu())
assert not y._is_view()
from noalias.native import is_loaded
print(tuple(x.grad.shape), is_loaded())
"""


@pytest.mark.usefixtures("core")
def test_linear_runs_on_the_core(environment: Environment) -> None:
    assert environment.python(LINEAR) == "(2, 3, 4) True\n"


def test_linear_runs_without_compiler_and_core(environment: Environment, tmp_path: Path) -> None:
    without = {"PATH": str(tmp_path), "NOALIAS_CACHE": str(tmp_path / "cache")}

    done = environment.run(["python", "-W", "default::RuntimeWarning", "-c", LINEAR], **without)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "(2, 3, 4) False\n"
    assert done.stderr.count("there is no C++ compiler on PATH") == 1
    assert "apt install g++" in done.stderr
