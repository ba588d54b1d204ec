"""`NOALIAS_SANITIZE`: a core of its own, in which a wrong access to memory ends the process."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from noalias.native import NativeUnavailable, build, cache, toolchain
from tests.native.support import Spawn, result

pytestmark = pytest.mark.usefixtures("cache_root", "sources")

# A statement, and what the sanitizer's report of it says.
WRONG = {
    "address": ("int* p = new int; delete p; *static_cast<volatile int*>(p) = 1;", "use-after"),
    "undefined": ("volatile int by = 40; volatile int x = 1 << by; (void)x;", "shift exponent"),
}


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment that `tools/sanitize.py` makes."""
    if sys.platform != "linux" or "NOALIAS_SANITIZE" in os.environ:
        pytest.skip("needs Linux, and a process without a sanitizer")
    path = Path(__file__).parents[2] / "tools" / "sanitize.py"
    spec = importlib.util.spec_from_file_location("noalias_sanitize", path)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setenv("NOALIAS_SANITIZE", "address,undefined")
    variables: dict[str, str] = tool.runtime(["address", "undefined"])
    return variables


def test_a_sanitized_core_is_another_core(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for named in ("", "address", "thread", "undefined", "address,undefined"):
        monkeypatch.setenv("NOALIAS_SANITIZE", named)
        keys.add(cache.key(toolchain.sources()))
    assert len(keys) == 5


@pytest.mark.parametrize("named", ["adress", "address,thread"])
def test_what_is_no_sanitizer_is_refused(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOALIAS_SANITIZE", named)

    with pytest.raises(NativeUnavailable, match="NOALIAS_SANITIZE") as caught:
        build.ensure()

    assert "address, thread, undefined" in caught.value.fix


@pytest.mark.parametrize("sanitizer", WRONG)
def test_a_wrong_access_ends_the_process_with_a_report(
    sanitizer: str, sources: Path, runtime: dict[str, str], spawn: Spawn
) -> None:
    statement, report = WRONG[sanitizer]
    stub = sources / "stub.cpp"
    stub.write_text(stub.read_text().replace("() { return", f"() {{ {statement} return"))
    build.ensure()

    process = spawn("from noalias.native import load; load(); print('loaded')", **runtime)
    out, err = process.communicate(timeout=120)

    assert process.returncode != 0
    assert out == ""
    assert report in err


def test_a_right_core_loads_with_the_runtime(runtime: dict[str, str], spawn: Spawn) -> None:
    build.ensure()

    process = spawn("from noalias.native import load; load(); print('loaded')", **runtime)

    assert result(process) == "loaded\n"
