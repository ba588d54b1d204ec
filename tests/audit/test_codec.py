from __future__ import annotations

from dataclasses import dataclass

import pytest

from noalias.audit.codec import FormatError, decode, dumps, encode, parse


@dataclass(frozen=True)
class Point:
    x: int
    weight: float = 1.0
    tags: tuple[str, ...] = ()
    inner: Point | None = None
    span: tuple[int, int] | None = None


def test_a_dataclass_survives_the_round_trip() -> None:
    point = Point(3, 0.5, ("a", "b"), Point(1), (2, 5))
    assert decode(Point, parse(dumps(encode(point)), "point"), "point") == point


def test_unknown_keys_are_ignored_so_that_newer_files_stay_readable() -> None:
    assert decode(Point, {"x": 1, "colour": "red"}, "point") == Point(1)


def test_an_integer_is_taken_for_a_number() -> None:
    assert decode(Point, {"x": 1, "weight": 2}, "point").weight == 2.0


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ({}, "point lacks the key 'x'"),
        ({"x": "1"}, "point.x must be an integer, got '1'"),
        ({"x": True}, "point.x must be an integer, got True"),
        ({"x": 1.5}, "point.x must be an integer, got 1.5"),
        ({"x": 1, "tags": "ab"}, "point.tags must be a list, got 'ab'"),
        ({"x": 1, "tags": [1]}, r"point.tags\[0\] must be a string, got 1"),
        ({"x": 1, "inner": {"x": None}}, "point.inner.x must be an integer, got None"),
        ({"x": 1, "span": [1]}, "point.span must have 2 items, got 1"),
        ({"x": 1, "weight": 10**400}, "point.weight is out of range: 1000"),
        ({"x": 2**63}, "point.x is out of range: 9223372036854775808"),
        ({"x": 1, "weight": -1e300}, r"point.weight is out of range: -1e\+300"),
        ([], "point must be an object, got list"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(value: object, complaint: str) -> None:
    with pytest.raises(FormatError, match=complaint):
        decode(Point, value, "point")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "{", "[1,]", "NaN", '{"a": Infinity}', b"\xff\xfe\x00"])
def test_what_is_not_json_is_refused_by_name(text: str | bytes) -> None:
    with pytest.raises(FormatError, match=r"notes\.json is not JSON"):
        parse(text, "notes.json")


def test_nesting_that_would_exhaust_the_stack_is_refused() -> None:
    with pytest.raises(FormatError, match=r"nested too deeply|not JSON"):
        parse("[" * 200_000, "deep")


def test_a_number_without_json_form_is_refused_when_written() -> None:
    with pytest.raises(ValueError, match="no JSON form"):
        encode(Point(1, float("nan")))


def test_written_text_is_ascii_even_for_lone_surrogates() -> None:
    text = dumps(encode(Point(1, tags=("\udcff", "é"))))
    assert text.isascii()
    assert decode(Point, parse(text, "point"), "point").tags == ("\udcff", "é")
