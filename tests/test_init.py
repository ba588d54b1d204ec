"""The public names: there when asked for, and not imported before."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import noalias


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_imports_no_pytorch_and_no_core() -> None:
    code = "import sys, noalias; print('torch' in sys.modules, 'noalias_core' in sys.modules)"

    assert python(code) == "False False\n"


@pytest.mark.parametrize("name", noalias.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(noalias, name).__doc__
    assert name in dir(noalias)


def test_using_a_public_name_loads_no_core() -> None:
    names = ", ".join(f"noalias.{name}" for name in noalias.__all__)

    assert (
        python(f"import sys, noalias; {names}; print('noalias_core' in sys.modules)") == "False\n"
    )


@pytest.mark.parametrize("name", ["linear", "audit"])
def test_function_is_not_hidden_by_the_subpackage_of_its_name(name: str) -> None:
    code = f"""
import importlib, noalias
importlib.import_module("noalias.{name}")
print(type(noalias.{name}).__name__)
from noalias import {name}
print(callable({name}))
"""
    assert python(code) == "function\nTrue\n"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'noalias' has no attribute 'nothing'"):
        noalias.nothing  # noqa: B018


def test_package_says_that_it_is_typed() -> None:
    from importlib.resources import files

    assert (files("noalias") / "py.typed").is_file()


def test_reloading_keeps_the_public_names() -> None:
    before = noalias.NativeUnavailable

    assert importlib.reload(noalias).NativeUnavailable is before
