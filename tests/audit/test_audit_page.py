"""docs/audit.md: its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("core")
def test_the_examples_run(capfd: pytest.CaptureFixture[str]) -> None:
    # PyTorch's profiler writes to stderr by itself.
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    exec(compile("\n".join(blocks), "audit.md", "exec"), {"__name__": "__main__"})
