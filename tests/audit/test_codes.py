from __future__ import annotations

from pathlib import Path

import audit_samples as samples
import pytest

from noalias.audit import codes

PAGES = Path(__file__).parents[2] / "docs" / "codes"


def test_every_code_has_its_page_and_every_page_its_code() -> None:
    assert {path.stem for path in PAGES.glob("NA*.md")} == set(codes.CODES)


@pytest.mark.parametrize("code", codes.CODES.values(), ids=lambda code: code.id)
def test_a_page_says_what_the_table_says(code: codes.Code) -> None:
    text = (PAGES / f"{code.id}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {code.id}: {code.title}\n")
    flat = " ".join(text.split())
    for part in (code.meaning, code.cost, code.cure):
        assert " ".join(part.split()) in flat
    assert f"**Level**: {code.level}" in flat


def test_a_beginning_stands_for_all_codes_that_have_it() -> None:
    assert codes.expand(["na2"]) == {"NA201", "NA202"}
    assert codes.expand(["NA"]) == set(codes.CODES)


@pytest.mark.parametrize("prefix", ["NA9", "", "X", "NA1011"])
def test_a_beginning_of_no_code_is_refused_and_the_codes_are_listed(prefix: str) -> None:
    with pytest.raises(ValueError, match="NA101, NA102"):
        codes.expand([prefix])


def test_na401_is_off_unless_selected() -> None:
    assert "NA401" not in codes.wanted()
    assert codes.wanted(select=["NA4"]) == {"NA401"}


def test_ignore_wins_over_select() -> None:
    assert codes.wanted(select=["NA1", "NA2"], ignore=["NA102"]) == {"NA101", "NA201", "NA202"}


def test_filtering_keeps_the_order() -> None:
    kept = codes.filter_findings(samples.full().findings, ignore=["NA102"])
    assert [finding.code for finding in kept] == ["NA101", "NA201", "NA301", "NA303"]


def test_a_code_from_a_newer_version_is_explained_honestly() -> None:
    assert codes.explain("NA999").title == "unknown code"
