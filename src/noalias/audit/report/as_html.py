"""The report as one self-contained HTML file.

Nothing is fetched: styles, script and drawings are inside, and the page's own content security
policy forbids everything else. All text from the audited program passes through
`noalias.audit.report.markup`, which escapes it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from noalias.audit.report import memory_svg
from noalias.audit.report.headline import (
    Figure,
    consequence,
    context,
    figures,
    headline,
    measurement_cells,
    module_name,
    opaque_text,
)
from noalias.audit.report.html_findings import details, overview
from noalias.audit.report.markup import Markup, join, tag
from noalias.audit.report.units import (
    amount_text,
    bytes_text,
    change_text,
    count_text,
    plural,
    seconds_text,
)
from noalias.audit.report.visible import visible

if TYPE_CHECKING:
    from noalias.audit.result import ModulePrice, Prediction, RankSummary, Report

ROWS = 40
"""Rows of the by-module table; the rest is summed up in a sentence."""


def render(report: Report) -> str:
    """The whole page. It can be written as UTF-8 whatever the report holds."""
    style, script = _asset("report.css"), _asset("report.js")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src 'sha256-{_digest(style)}'; script-src 'sha256-{_digest(script)}'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"noalias audit: {program(report, 80)}"),
        tag("style", Markup(style)),
    )
    body = tag("body", _page(report), tag("script", Markup(script)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def program(report: Report, limit: int = 200) -> str:
    """The audited command line on one line."""
    return visible(" ".join(report.argv), limit) or "a step"


@functools.cache
def _asset(name: str) -> str:
    template = files("noalias.audit.report").joinpath("template").joinpath(name)
    return template.read_text(encoding="utf-8").strip()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _page(report: Report) -> Markup:
    return join(
        _masthead(report),
        tag(
            "main",
            _summary(report),
            _memory(report),
            overview(report),
            details(report),
            _modules(report),
            _predictions(report),
            _opaque(report),
            _ranks(report),
        ),
        tag(
            "footer",
            tag(
                "p",
                "This file contains lines of the audited program's source code, file names and "
                "its command line. It loads nothing from the network.",
            ),
        ),
    )


def _masthead(report: Report) -> Markup:
    return tag(
        "header",
        tag("span", "noalias audit", class_="brand"),
        tag("code", program(report), class_="program"),
        tag(
            "button",
            "Theme: auto",
            id="theme",
            type="button",
            class_="quiet",
            title="Switch between automatic, light and dark",
        ),
        class_="masthead",
    )


def _summary(report: Report) -> Markup:
    price = report.price
    found = plural(len(report.findings), "finding")
    if report.suppressed:
        found += f", {report.suppressed} known from the baseline left out"
    return tag(
        "section",
        tag("h1", headline(report)),
        tag("p", consequence(price) if price else _unmeasured(report), class_="lead"),
        tag("div", [_tile(figure) for figure in figures(price)], class_="tiles") if price else None,
        tag("ul", [tag("li", note) for note in report.notes], class_="notes")
        if report.notes
        else None,
        tag("p", f"{found} · {' · '.join(context(report))}", class_="muted small"),
        _cured_by(report),
        class_="summary",
    )


def _cured_by(report: Report) -> Markup | None:
    if report.price is None:
        return None
    cures = ", ".join(report.price.cures)
    runs = plural(report.price.runs, "interleaved run")
    text = f"Measured over {runs} of each variant; the smallest time counts."
    return tag("p", text, f" Cures: {cures}." if cures else "", class_="muted small")


def _unmeasured(report: Report) -> str:
    if not report.findings:
        seen = plural(report.steps.backward_calls, "backward call")
        return f"{seen} looked at."
    return "These are predictions; the step was not run again to measure them."


def _tile(figure: Figure) -> Markup:
    most = max(figure.stock, figure.cured) or 1
    bars = [
        tag("rect", class_=class_, x=0, y=y, height=5, rx=1, width=max(value / most * 100, 1.0))
        for class_, y, value in (("stock", 0, figure.stock), ("cured", 8, figure.cured))
    ]
    state = "better" if figure.better else "same" if figure.change == "same" else "worse"
    return tag(
        "div",
        tag("h2", figure.name),
        tag("span", figure.change, class_=f"change {state}"),
        tag("p", figure.cured_text, class_="value"),
        tag(
            "svg",
            bars,
            class_="bars",
            viewBox="0 0 100 13",
            preserveAspectRatio="none",
            aria_hidden="true",
        ),
        tag("p", f"stock {figure.stock_text}", class_="muted small"),
        tag("p", figure.note, class_="muted small") if figure.note else None,
        class_="tile",
    )


def _memory(report: Report) -> Markup | None:
    chart = memory_svg.draw(report.memory) if report.memory else Markup("")
    if not chart:
        return None
    return tag(
        "section",
        tag("h2", "Memory over one step"),
        tag("p", "Live bytes from the start of the step to its end.", class_="muted"),
        tag(
            "p",
            tag("span", "stock", class_="key stock"),
            tag("span", "cured", class_="key cured"),
            class_="legend",
        ),
        chart,
        class_="chart",
    )


def _table(head: list[Markup], rows: list[Markup], class_: str = "") -> Markup:
    return tag(
        "div",
        tag("table", tag("thead", tag("tr", head)), tag("tbody", rows), class_=class_),
        class_="scroll",
    )


def _heads(*names: str) -> list[Markup]:
    return [
        tag("th", name, scope="col", class_="number" if i else None) for i, name in enumerate(names)
    ]


def _modules(report: Report) -> Markup | None:
    if report.price is None or not report.price.modules:
        return None
    ordered = sorted(
        report.price.modules, key=lambda m: m.stock.bytes_moved - m.cured.bytes_moved, reverse=True
    )
    rest = len(ordered) - ROWS
    return tag(
        "section",
        tag("h2", "Price by module"),
        tag("p", "Measured, stock → with the cures, largest saving first.", class_="muted"),
        _table(
            _heads("Module", "Copies", "Bytes moved", "Allocated", "Peak", "Time"),
            [_module(module) for module in ordered[:ROWS]],
        ),
        tag("p", f"and {plural(rest, 'more module')}", class_="muted") if rest > 0 else None,
    )


def _module(module: ModulePrice) -> Markup:
    stock, cured = module.stock, module.cured
    return tag(
        "tr",
        tag("th", tag("code", module_name(module.module)), scope="row"),
        _pair(count_text(stock.copies), count_text(cured.copies)),
        _pair(bytes_text(stock.bytes_moved), bytes_text(cured.bytes_moved)),
        _pair(bytes_text(stock.bytes_allocated), bytes_text(cured.bytes_allocated)),
        _pair(bytes_text(stock.peak_bytes), bytes_text(cured.peak_bytes)),
        _pair(seconds_text(stock.time_min), seconds_text(cured.time_min)),
    )


def _pair(stock: str, cured: str) -> Markup:
    if stock == cured:
        return tag("td", tag("span", stock, class_="muted"), class_="number")
    return tag("td", f"{stock} → ", tag("strong", cured), class_="number")


def _predictions(report: Report) -> Markup | None:
    if not report.predictions:
        return None
    missed = sum(not prediction.borne_out for prediction in report.predictions)
    text = (
        f"{missed} of {len(report.predictions)} were not borne out by the measurement."
        if missed
        else "The measurement bears out all of them."
    )
    return tag(
        "section",
        tag("h2", "Predicted and measured savings"),
        tag("p", text, class_="muted"),
        _table(
            _heads("Quantity", "Predicted", "Measured", "Difference", "Borne out"),
            [_prediction(prediction) for prediction in report.predictions],
        ),
    )


def _prediction(prediction: Prediction) -> Markup:
    quantity = prediction.quantity.replace("_", " ")
    held = prediction.borne_out
    return tag(
        "tr",
        tag("th", quantity, f" in {prediction.module}" if prediction.module else "", scope="row"),
        tag("td", amount_text(prediction.predicted, prediction.unit), class_="number"),
        tag("td", amount_text(prediction.measured, prediction.unit), class_="number"),
        tag("td", change_text(prediction.predicted, prediction.measured), class_="number"),
        tag(
            "td",
            tag("span", "yes" if held else "no", class_=f"mark {'yes' if held else 'no'}"),
            class_="number",
        ),
    )


def _opaque(report: Report) -> Markup | None:
    if not report.opaque:
        return None
    return tag(
        "section",
        tag("h2", "Not looked into"),
        tag(
            "p",
            "These ran, and the audit could not see inside. They are not known to be clean.",
            class_="muted",
        ),
        tag("ul", [tag("li", opaque_text(region)) for region in report.opaque]),
    )


def _ranks(report: Report) -> Markup | None:
    if not report.ranks:
        return None
    return tag(
        "section",
        tag("h2", "Ranks"),
        _table(
            _heads("Rank", "Findings", "Steps", "Time", "Copies", "Peak", "Cured time"),
            [_rank(summary) for summary in report.ranks],
        ),
    )


def _rank(summary: RankSummary) -> Markup:
    host = f" on {summary.rank.host}" if summary.rank.host else ""
    cells = (
        count_text(summary.findings),
        count_text(summary.steps.seen),
        *measurement_cells(summary.stock),
        measurement_cells(summary.cured)[0],
    )
    return tag(
        "tr",
        tag("th", f"{summary.rank.rank}{host}", scope="row"),
        [tag("td", cell, class_="number") for cell in cells],
    )
