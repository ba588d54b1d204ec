from __future__ import annotations

import audit_samples as samples
import pytest

from noalias.audit.codec import FormatError
from noalias.audit.finding import SCHEMA_VERSION
from noalias.audit.report import as_json
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
