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

from noalias.audit.report import html_tables, memory_svg
from noalias.audit.report.headline import (
    Figure,
    consequence,
    context,
    figures,
    headline,
)
from noalias.audit.report.html_findings import details, overview
from noalias.audit.report.markup import Markup, join, tag
from noalias.audit.report.units import (
    plural,
)
from noalias.visible import visible

if TYPE_CHECKING:
    from noalias.audit.result import Report


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
            html_tables.modules(report),
            html_tables.predictions(report),
            html_tables.opaque(report),
            html_tables.ranks(report),
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
    state = "better" if figure.better else "same" if figure.even else "worse"
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
