from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import audit_samples as samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noalias.audit.report import as_html
from noalias.audit.result import Report

FULL = as_html.render(samples.full())
HOSTILE = as_html.render(samples.hostile())
VOID = {"meta", "br", "hr", "col"}


class Page(HTMLParser):
    """Elements, attributes and visible text of a page, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("page", [FULL, HOSTILE, as_html.render(Report())])
def test_the_page_is_well_formed(page: str) -> None:
    assert Page(page).open == []


def test_the_page_leads_with_what_the_step_pays() -> None:
    text = Page(FULL).text
    assert "Each step makes 9 copies; enable() takes away 8 of them." in text
    assert text.index("Each step makes") < text.index("Memory over one step")
    assert text.index("Memory over one step") < text.index("in-place on a hidden base")


def test_every_finding_has_its_row_its_article_and_a_link_between() -> None:
    page = Page(FULL)
    ids = [a["id"] for a in page.named("article")]
    links = [a["href"] for a in page.named("a")]
    assert links == [f"#{name}" for name in ids]
    assert len(ids) == len(samples.full().findings)


def test_the_source_is_shown_with_its_line_marked() -> None:
    lines = [a for a in Page(FULL).named("span") if a.get("class") == "line here"]
    assert len(lines) == len(samples.full().findings)
    assert "# norm returns a view of a reshaped temporary" in Page(FULL).text


def test_both_graphs_of_a_finding_are_drawn() -> None:
    drawn = [a for a in Page(FULL).named("svg") if a.get("class") == "graph"]
    assert len(drawn) == 2


def test_a_prediction_that_is_not_borne_out_is_shown_as_such() -> None:
    assert "1 of 3 were not borne out by the measurement." in Page(FULL).text
    kept = replace(samples.full(), predictions=samples.full().predictions[:2])
    assert "The measurement bears out all of them." in Page(as_html.render(kept)).text


def test_compiled_code_is_not_called_clean() -> None:
    text = Page(FULL).text
    assert "They are not known to be clean." in text
    assert "torch.compile region at /home/ada/seg/augment.py:14, 3 calls" in text


def test_the_page_says_that_it_contains_source_code() -> None:
    assert "This file contains lines of the audited program's source code" in Page(FULL).text


def test_nothing_is_fetched() -> None:
    for page in (FULL, HOSTILE):
        parsed = Page(page)
        loading = {"src", "srcset", "data", "action", "poster", "background", "xlink:href"}
        attributes = [a for _, attributes in parsed.elements for a in attributes.items()]
        assert not [name for name, _ in attributes if name in loading]
        assert all((v or "").startswith("#") for name, v in attributes if name == "href")
        assert {"link", "img", "iframe", "object", "embed", "base"}.isdisjoint(
            name for name, _ in parsed.elements
        )
    assert not re.search(r"url\(|@import|https?:", FULL)
    (policy,) = [
        a["content"] for a in Page(FULL).named("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    ]  # fmt: skip
    assert policy is not None
    assert policy.startswith("default-src 'none';")


def test_a_stranger_s_text_makes_no_element_and_no_attribute() -> None:
    allowed = {name for name, _ in Page(FULL).elements}
    page = Page(HOSTILE)
    assert {name for name, _ in page.elements} <= allowed
    assert len(page.named("script")) == 1
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]


def test_a_stranger_s_text_is_shown_with_its_escapes_spelt_out() -> None:
    text = Page(HOSTILE).text
    assert "<script>alert(1)</script>" in text
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(text)
    assert "\\x1b]0;owned\\x07" in text


def test_the_page_can_be_written_whatever_it_holds() -> None:
    HOSTILE.encode("utf-8")


def test_long_names_are_cut_and_say_so() -> None:
    assert re.search(r"… \(\+\d+ characters\)", Page(HOSTILE).text)
    assert len(HOSTILE) < 400_000


@settings(max_examples=40)
@given(st.text(st.characters(), max_size=40))
def test_any_text_keeps_the_page_s_shape(text: str) -> None:
    page, plain = Page(as_html.render(samples.hostile(text))), Page(BLAND)
    assert page.open == []
    kinds = {name for name, _ in page.elements}
    assert kinds <= {name for name, _ in plain.elements} | {name for name, _ in Page(FULL).elements}
    assert len(page.named("script")) == 1


BLAND = as_html.render(samples.hostile("name"))
