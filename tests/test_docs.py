"""Every Python block of the documentation and the README runs as written, page by page."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

import noalias

ROOT = Path(__file__).parents[1]
# The codes' pages have a test of their own, which also looks at what they say.
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md"])
# ```python notest marks a block that needs another package; tests/test_recipes.py runs those.
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+\.(?:md|svg|png))[^)]*\)")


@pytest.fixture(autouse=True)
def _off_afterwards() -> Iterator[None]:
    yield
    noalias.disable()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_of_a_page_run_as_written(page: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


def test_tables_say_what_the_benchmark_files_hold() -> None:
    tables = runpy.run_path(str(ROOT / "tools" / "benchmark_tables.py"))
    assert tables["main"](["--check"]) == 0
