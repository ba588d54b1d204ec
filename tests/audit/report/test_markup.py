from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from noalias.audit.report.markup import LONGEST, Markup, join, tag
from noalias.visible import visible


def test_text_is_escaped_and_markup_is_not() -> None:
    inner = tag("b", "<script>")
    assert tag("p", "a & b ", inner) == "<p>a &amp; b <b>&lt;script&gt;</b></p>"


def test_attribute_names_follow_html() -> None:
    made = tag("th", class_="n", aria_sort="none", viewBox="0 0", hidden=True, id=None, x=1.50)
    assert made == '<th class="n" aria-sort="none" viewBox="0 0" hidden x="1.5"></th>'


def test_void_elements_have_no_end() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_lists_are_joined_and_none_is_nothing() -> None:
    assert join(["a", None, ["<", Markup("<br>")]], 3) == "a&lt;<br>3"


def test_long_text_is_cut_but_not_long_markup() -> None:
    assert "(+1 characters)" in tag("p", "a" * (LONGEST + 1))
    path = Markup("M0 0" * LONGEST)
    assert path in tag("path", d=path)


class Reader(HTMLParser):
    """Collects what a browser would see of the one element."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(st.characters(), max_size=80), st.text(st.characters(), max_size=80))
def test_any_text_stays_text_in_content_and_attribute(content: str, value: str) -> None:
    reader = Reader()
    reader.feed(tag("p", content, title=value))
    reader.close()
    assert reader.tags == [("p", [("title", visible(value))])]
    assert reader.text == visible(content)
