"""The report as SARIF 2.1.0, for code hosts and editors that show results beside the code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from noalias.audit import codes
from noalias.audit.baseline import fingerprint, relative_file
from noalias.audit.codec import Json, dumps
from noalias.audit.report.headline import cost_text, opaque_text, verdict_text
from noalias.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noalias.audit.finding import Finding
    from noalias.audit.result import Report

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def render(report: Report, root: str | os.PathLike[str] | None = None) -> str:
    """SARIF text; files below `root` (default: the working directory) are given relative to it."""
    rules = _rules(report.findings)
    order = {rule: index for index, rule in enumerate(rules)}
    run: dict[str, Json] = {
        "tool": {
            "driver": {
                "name": "noalias",
                "semanticVersion": report.environment.noalias or "0",
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [_invocation(report)],
        "results": [_result(f, order[f.code], root) for f in report.findings],
    }
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _rules(findings: Sequence[Finding]) -> list[str]:
    """Every known code, then those of a report that a newer noalias wrote."""
    return list(dict.fromkeys([*codes.CODES, *(finding.code for finding in findings)]))


def _rule(name: str) -> Json:
    code = codes.explain(name)
    return {
        "id": code.id,
        "name": "".join(word.capitalize() for word in code.title.replace("-", " ").split()),
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": f"{code.meaning} {code.cost}".strip()},
        "help": {"text": code.cure or "Read the report with the noalias that wrote it."},
        "defaultConfiguration": {"level": code.level, "enabled": code.default},
    }


def _invocation(report: Report) -> Json:
    notes = [*report.notes, *(f"not looked into: {opaque_text(r)}" for r in report.opaque)]
    notifications: list[Json] = [
        {"level": "note", "message": {"text": visible(note, 2000)}} for note in notes if note
    ]
    return {
        "executionSuccessful": True,
        "arguments": [visible(argument, 2000) for argument in report.argv],
        "toolExecutionNotifications": notifications,
    }


def _result(finding: Finding, rule: int, root: str | os.PathLike[str] | None) -> Json:
    related = (
        ("the view was made here", finding.made_by),
        ("the value was saved here", finding.saved_by),
        ("the hook was registered here", finding.hook),
    )
    message = finding.message or codes.explain(finding.code).title
    text = (
        f"{message.rstrip('.')}. {cost_text(finding)}; {verdict_text(finding)}. "
        f"{finding.cure or codes.explain(finding.code).cure}"
    )
    result: dict[str, Json] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": codes.explain(finding.code).level,
        "message": {"text": visible(text, 4000)},
        "partialFingerprints": {"noalias/v1": fingerprint(finding, root)},
        "properties": {
            "operator": visible(finding.operator),
            "verdict": finding.verdict,
            "count": finding.count,
            "copies": finding.copies,
            "bytes": finding.bytes,
            "extraPeakBytes": finding.extra_peak_bytes,
        },
    }
    if finding.file:
        result["locations"] = [_location(finding, root)]
    relations: list[Json] = [
        {"id": index, "message": {"text": text}, **_physical(o.file, o.line, o.source, root)}
        for index, (text, o) in enumerate(related, 1)
        if o is not None and o.file
    ]
    if relations:
        result["relatedLocations"] = relations
    return result


def _location(finding: Finding, root: str | os.PathLike[str] | None) -> Json:
    location = _physical(finding.file, finding.line, finding.source, root)
    if finding.module:
        name = visible(finding.module)
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "module"}]
    return location


def _physical(
    file: str, line: int, source: str, root: str | os.PathLike[str] | None
) -> dict[str, Json]:
    base = Path(root) if root is not None else Path.cwd()
    artifact: dict[str, Json]
    if Path(os.path.normpath(base / file)).is_relative_to(base):
        artifact = {"uri": _quoted(relative_file(file, base)), "uriBaseId": "%SRCROOT%"}
    elif Path(file).is_absolute():
        artifact = {"uri": f"file://{_quoted(file)}"}
    else:
        artifact = {"uri": _quoted(file)}
    physical: dict[str, Json] = {"artifactLocation": artifact}
    if line > 0:
        region: dict[str, Json] = {"startLine": line}
        if source:
            region["snippet"] = {"text": visible(source, 400)}
        physical["region"] = region
    return {"physicalLocation": physical}


def _quoted(path: str) -> str:
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = path.encode("utf-8", "surrogatepass")
    return quote(raw, safe="/")
