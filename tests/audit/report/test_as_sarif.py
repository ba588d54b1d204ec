from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import audit_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.audit import codes
from noalias.audit.report import as_sarif
from noalias.audit.result import Report

ROOT = "/home/ada/seg"
LEVELS = {"none", "note", "warning", "error"}


def run(report: Report, root: str = ROOT) -> dict[str, Any]:
    log = json.loads(as_sarif.render(report, root))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (only,) = log["runs"]
    assert isinstance(only, dict)
    return only


def check(run: dict[str, Any]) -> None:
    """What the SARIF 2.1.0 schema requires of the parts that are written."""
    driver = run["tool"]["driver"]
    assert driver["name"] == "noalias"
    ids = [rule["id"] for rule in driver["rules"]]
    assert len(ids) == len(set(ids))
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] in LEVELS
    for invocation in run["invocations"]:
        assert isinstance(invocation["executionSuccessful"], bool)
        for notification in invocation["toolExecutionNotifications"]:
            assert notification["level"] in LEVELS
            assert notification["message"]["text"]
    for result in run["results"]:
        assert result["message"]["text"]
        assert result["level"] in LEVELS
        assert ids[result["ruleIndex"]] == result["ruleId"]
        for fingerprint in result["partialFingerprints"].values():
            assert isinstance(fingerprint, str)
        relations = result.get("relatedLocations", [])
        assert len({relation["id"] for relation in relations}) == len(relations)
        for location in [*result.get("locations", []), *relations]:
            physical = location["physicalLocation"]
            uri = physical["artifactLocation"]["uri"]
            assert re.fullmatch(r"(?:[A-Za-z0-9\-._~/:]|%[0-9A-F]{2})+", uri)
            assert physical.get("region", {"startLine": 1})["startLine"] >= 1


@pytest.mark.parametrize("report", [Report(), samples.full(), samples.hostile()])
def test_the_log_has_the_structure_the_standard_requires(report: Report) -> None:
    check(run(report))


def test_rules_come_from_the_table_of_codes() -> None:
    rules = run(Report())["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(codes.CODES)
    assert rules[0]["name"] == "InPlaceOnAHiddenBase"
    assert rules[-1]["defaultConfiguration"] == {"level": "note", "enabled": False}


def test_a_result_points_at_the_line_relative_to_the_root() -> None:
    result = run(samples.full())["results"][0]
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "blocks.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 41, "snippet": {"text": samples.HIDDEN.source}},
    }
    assert location["logicalLocations"] == [
        {"fullyQualifiedName": "encoder.stages.0.blocks.0.act", "kind": "module"}
    ]


def test_the_line_that_made_the_view_is_a_related_location() -> None:
    (related,) = run(samples.full())["results"][0]["relatedLocations"]
    assert related["message"]["text"] == "the view was made here"
    assert related["physicalLocation"]["region"]["startLine"] == 40


def test_a_file_elsewhere_is_an_absolute_uri() -> None:
    far = replace(samples.HIDDEN, file="/opt/my libs/net ü.py")
    (location,) = run(Report(findings=(far,)))["results"][0]["locations"]
    uri = location["physicalLocation"]["artifactLocation"]
    assert uri == {"uri": "file:///opt/my%20libs/net%20%C3%BC.py"}


def test_a_finding_without_a_line_has_no_region() -> None:
    (result,) = run(Report(findings=(replace(samples.HIDDEN, line=0),)))["results"]
    assert "region" not in result["locations"][0]["physicalLocation"]


def test_the_fingerprint_is_the_baselines() -> None:
    from noalias.audit.baseline import fingerprint

    result = run(samples.full())["results"][0]
    assert result["partialFingerprints"] == {"noalias/v1": fingerprint(samples.HIDDEN, ROOT)}


def test_opaque_regions_and_notes_are_notifications() -> None:
    (invocation,) = run(samples.full())["invocations"]
    texts = [n["message"]["text"] for n in invocation["toolExecutionNotifications"]]
    assert texts[0] == "the program was stopped after 3 steps, as --steps asked"
    assert texts[1].startswith("not looked into: torch.compile region")


def test_a_code_of_a_newer_version_gets_a_rule_of_its_own() -> None:
    newer = run(Report(findings=(replace(samples.HIDDEN, code="NA777"),)))
    check(newer)
    assert newer["tool"]["driver"]["rules"][-1]["id"] == "NA777"


@given(st.text(st.characters(), max_size=60))
def test_any_text_keeps_the_structure(text: str) -> None:
    check(run(samples.hostile(text)))
