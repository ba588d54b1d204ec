from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

from noalias.audit.result import Report

# Tests are imported one by one (--import-mode=importlib); this lets them share audit_samples.
sys.path.insert(0, str(Path(__file__).parent))

# Time is no property of a report; on a busy machine hypothesis' deadline would make it one.
settings.register_profile("audit", parent=settings(), deadline=None)
settings.load_profile("audit")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Callable[[Report], None]:
    """Puts an audit in the recorder's place that finds what the test says."""

    def install(found: Report) -> None:
        module = ModuleType("noalias.audit.record")
        module.audit = fake_audit(found)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "noalias.audit.record", module)

    return install


def fake_audit(found: Report) -> object:
    """An `audit` with the recorder's interface: the report is empty until the block ends."""

    @contextmanager
    def audit() -> Iterator[Report]:
        report = Report()
        try:
            yield report
        finally:
            for field in fields(Report):
                setattr(report, field.name, getattr(found, field.name))

    return audit


@pytest.fixture
def chromium(tmp_path: Path) -> Callable[..., str]:
    """Runs headless Chromium on a page: ``chromium(html, *flags)`` gives its standard output."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")

    def run(page: str, *flags: str, query: str = "") -> str:
        path = tmp_path / "page.html"
        path.write_text(page, encoding="utf-8")
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}",
            *flags, f"file://{path}{query}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, timeout=120, check=True)
        return done.stdout.decode("utf-8")

    return run


@pytest.fixture(autouse=True)
def _program_does_not_outlive_its_test() -> Iterator[None]:
    """A program that was run here stays `__main__`, and an optimizer of its alive in it, by whose
    steps the next program would be counted.
    """
    main = sys.modules["__main__"]
    yield
    if sys.modules["__main__"] is not main:
        sys.modules["__main__"] = main
        gc.collect()
