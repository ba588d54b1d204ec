from __future__ import annotations

import pytest

from noalias.audit.report import units


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (27 * 2**20, "27 MiB"),
     (1000 * 2**20, "1 GiB"), (189.4 * 2**20, "189 MiB"), (3 * 2**50, "3072 TiB"),
     (-(2**20), "−1 MiB")],
)  # fmt: skip
def test_bytes_are_given_in_binary_units(size: float, text: str) -> None:
    assert units.bytes_text(size) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [(0, "0 µs"), (8.5e-4, "850 µs"), (1e-3, "1.00 ms"), (16.4e-3, "16.4 ms"), (0.2, "200 ms"),
     (0.9999, "1.00 s"), (2.1, "2.10 s"), (75, "75.0 s"), (600, "600 s"), (-0.002, "−2.00 ms")],
)  # fmt: skip
def test_times_are_given_with_three_digits(time: float, text: str) -> None:
    assert units.seconds_text(time) == text


def test_thousands_are_set_apart() -> None:
    assert units.count_text(1234567) == "1\u202f234\u202f567"
    assert units.count_text(2.5) == "2.5"
    assert units.count_text(-3) == "−3"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(100, 74, "−26 %"), (100, 103, "+3 %"), (1000, 1001, "same"), (5, 5, "same"), (4, 0, "gone"),
     (0, 4, "new"), (0, 0, "same"), (1, 50, "× 50")],
)  # fmt: skip
def test_changes_are_told_in_per_cent_or_in_a_word(before: float, after: float, text: str) -> None:
    assert units.change_text(before, after) == text


def test_nouns_follow_their_number() -> None:
    assert units.plural(1, "copy", "copies") == "1 copy"
    assert units.plural(0, "copy", "copies") == "0 copies"
    assert units.plural(2, "line") == "2 lines"
