"""The tables of the HTML report: by module, predictions, what was not looked into, ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noalias.audit.report.headline import (
    MISSED,
    measurement_cells,
    module_name,
    opaque_text,
    within_noise,
)
from noalias.audit.report.markup import Markup, tag
from noalias.audit.report.units import (
    amount_text,
    bytes_text,
    change_text,
    count_text,
    plural,
    seconds_text,
)

if TYPE_CHECKING:
    from noalias.audit.result import ModulePrice, Prediction, RankSummary, Report

ROWS = 40
"""Rows of the by-module table; the rest is summed up in a sentence."""


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


def modules(report: Report) -> Markup | None:
    """Measured price by module, or nothing where none was measured."""
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
        _pair(
            seconds_text(stock.time_min),
            seconds_text(cured.time_min),
            same=within_noise(stock, cured),
        ),
    )


def _pair(stock: str, cured: str, *, same: bool = False) -> Markup:
    if stock == cured or same:
        text = stock if stock == cured else f"{stock} → {cured}"
        return tag("td", tag("span", text, class_="muted"), class_="number")
    return tag("td", f"{stock} → ", tag("strong", cured), class_="number")


def predictions(report: Report) -> Markup | None:
    """Predicted savings beside the measured ones."""
    if not report.predictions:
        return None
    missed = sum(not prediction.borne_out for prediction in report.predictions)
    text = (
        f"{missed} of {len(report.predictions)} were not borne out by the measurement. {MISSED}"
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


def opaque(report: Report) -> Markup | None:
    """What ran and could not be looked into."""
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


def ranks(report: Report) -> Markup | None:
    """Each rank's totals, in a merged report."""
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
