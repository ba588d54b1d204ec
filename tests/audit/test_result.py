from __future__ import annotations

import json
from collections.abc import Iterable

import audit_samples as samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noalias.audit.codec import FormatError
from noalias.audit.finding import SCHEMA_VERSION
from noalias.audit.report import FORMATS, as_json, render
from noalias.audit.result import Prediction, Report


@pytest.mark.parametrize("report", [Report(), samples.full(), samples.hostile()])
def test_a_report_survives_the_round_trip_through_a_file(report: Report) -> None:
    assert as_json.loads(as_json.render(report)) == report


def test_a_report_says_its_schema_version() -> None:
    value = samples.full().to_json()
    assert isinstance(value, dict)
    assert value["schema_version"] == SCHEMA_VERSION


def test_a_newer_schema_is_refused_with_the_way_out() -> None:
    value = samples.full().to_json()
    assert isinstance(value, dict)
    value["schema_version"] = SCHEMA_VERSION + 1
    with pytest.raises(FormatError, match="schema_version 2, this noalias reads up to 1"):
        Report.from_json(value)


@pytest.mark.parametrize("version", [None, "1", True, 0, -3])
def test_json_without_a_schema_version_is_no_report(version: object) -> None:
    with pytest.raises(FormatError, match="lacks a schema_version"):
        Report.from_json({"schema_version": version})  # type: ignore[dict-item]


def test_a_wrong_value_deep_inside_is_named_with_its_path() -> None:
    value = samples.full().to_json()
    assert isinstance(value, dict)
    value["findings"][3]["line"] = "52"  # type: ignore[index, call-overload]
    with pytest.raises(FormatError, match=r"report\.findings\[3\]\.line must be an integer"):
        Report.from_json(value)


@pytest.mark.parametrize(
    ("predicted", "measured", "held"), [(8, 8, True), (100, 109, True), (100, 111, False),
                                        (0, 0, True), (0, 1, False), (-10, -10.5, True)],
)  # fmt: skip
def test_a_prediction_is_borne_out_within_its_tolerance(
    predicted: float, measured: float, held: bool
) -> None:
    assert Prediction("copies", predicted, measured, tolerance=0.1).borne_out is held


def test_totals_are_sums_over_findings() -> None:
    report = samples.full()
    assert report.copies == 4 + 4 + 128 + 4 + 0
    assert report.bytes_moved == sum(f.copies * f.bytes for f in report.findings)


def leaves(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values inside a JSON value, containers included."""
    inner: list[tuple[str | int, ...]] = [path] if path else []
    items: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        inner += leaves(item, (*path, key))
    return inner


SAMPLE = json.dumps(samples.full().to_json())
PATHS = leaves(json.loads(SAMPLE))
rubbish = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(PATHS), rubbish), min_size=1, max_size=4))
def test_a_damaged_report_is_refused_or_can_be_shown_in_every_format(
    damage: list[tuple[tuple[str | int, ...], object]],
) -> None:
    value = json.loads(SAMPLE)
    for path, replacement in damage:
        place = value
        try:
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = replacement
        except (KeyError, IndexError, TypeError):
            continue  # an earlier replacement has taken this place away
    try:
        report = as_json.loads(json.dumps(value))
    except FormatError:
        return
    for name in FORMATS:
        render(report, name).encode("utf-8")


@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    with pytest.raises(FormatError):
        as_json.loads(text)
