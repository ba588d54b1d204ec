from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.visible import tail, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x.relu_()", "x.relu_()"),
        ("größe_文", "größe_文"),
        ("a\tb", "a    b"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b2J", "\\x9b2J"),
        ("line\r\nend", "line\\x0d\\x0aend"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("bad\udcffbyte", "bad\\xffbyte"),
        ("lone\ud800", "lone\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_does_not_show_itself_is_written_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert visible("a" * 250, limit=10) == "a" * 10 + "… (+240 characters)"


def test_the_tail_of_a_path_is_kept() -> None:
    assert tail("/a/b/c/net.py:3", 8) == "…net.py:3"
    assert tail("net.py", 8) == "net.py"


@given(st.text(st.characters(), max_size=300))
def test_nothing_invisible_is_left_and_every_encoder_takes_it(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert len(shown.splitlines()) <= 1
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs"} for c in shown)
