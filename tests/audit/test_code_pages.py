"""The examples on the codes' pages are run, so that they show what they say they show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "codes").glob("NA*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_as_written(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert len(blocks) >= 2, "a page needs an example and its cure"
    names: dict[str, object] = {"__name__": page.stem}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_first_example_marks_the_line_that_is_found(page: Path) -> None:
    assert f"# {page.stem}" in BLOCK.findall(page.read_text(encoding="utf-8"))[0]
