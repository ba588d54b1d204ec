"""Each thing a build needs can be missing; the error says which and how to get it."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
import torch
import torch.utils

from noalias.native import NativeUnavailable, build, toolchain

pytestmark = pytest.mark.usefixtures("cache_root", "sources")


def test_no_compiler_says_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NativeUnavailable, match=r"no C\+\+ compiler on PATH") as caught:
        build.ensure()

    assert "apt install g++" in caught.value.fix or "xcode-select" in caught.value.fix


def test_cxx_that_names_no_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(NativeUnavailable, match="CXX='no-such-compiler' names no program"):
        build.ensure()


def test_no_ninja_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "g++").symlink_to(toolchain.require_compiler().command[0])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setitem(sys.modules, "ninja", None)

    with pytest.raises(NativeUnavailable, match="ninja is not installed") as caught:
        build.ensure()

    assert caught.value.fix.endswith("-m pip install ninja")


def test_no_setuptools_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.utils, "cpp_extension", raising=False)
    monkeypatch.delitem(sys.modules, "torch.utils.cpp_extension", raising=False)
    monkeypatch.setitem(sys.modules, "setuptools", None)

    with pytest.raises(NativeUnavailable, match="cpp_extension cannot be imported") as caught:
        build.ensure()

    assert caught.value.fix.endswith("-m pip install setuptools")


def test_no_python_headers_says_which_package_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))

    with pytest.raises(NativeUnavailable, match=r"no Python\.h") as caught:
        build.ensure()

    assert f"python{sys.version_info[0]}.{sys.version_info[1]}-dev" in caught.value.fix


def test_no_pytorch_headers_says_to_reinstall_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torch.utils import cpp_extension

    monkeypatch.setattr(cpp_extension, "include_paths", lambda: [str(tmp_path)])

    with pytest.raises(NativeUnavailable, match="PyTorch's headers are not in"):
        build.ensure()


def test_no_sources_says_to_reinstall_noalias(sources: Path) -> None:
    (sources / "stub.cpp").unlink()

    with pytest.raises(NativeUnavailable, match="the core's sources are not in"):
        build.ensure()
