"""The report for the terminal. All text goes through `rich.text.Text`, never through markup."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from noalias.audit import codes
from noalias.audit.report.headline import (
    MISSED,
    consequence,
    context,
    cost_text,
    figures,
    happens_text,
    headline,
    measurement_cells,
    module_name,
    opaque_text,
    tensor_text,
    verdict_text,
)
from noalias.audit.report.units import amount_text, bytes_text, count_text, plural
from noalias.visible import visible

if TYPE_CHECKING:
    from noalias.audit.finding import Finding, Origin
    from noalias.audit.result import Price, Report

_LEVEL_STYLES = {"error": "bold red", "warning": "bold yellow", "note": "bold"}
MODULES = 12
"""Rows of the by-module table; the HTML and JSON reports have more."""


def render(report: Report, *, width: int = 100, color: bool = False) -> str:
    """The report as text of `width` columns, with terminal colours if `color`."""
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=max(width, 20),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
    )
    show(report, console)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def show(report: Report, console: Console) -> None:
    """Print the report to `console`."""
    program = visible(" ".join(report.argv), 200)
    _print(console, ("noalias audit", "bold"), (f"  {program}" if program else "", ""))
    _print(console, (" · ".join(context(report)), "dim"))
    console.print()
    _print(console, (headline(report), "bold"))
    if report.price is not None:
        _print(console, (consequence(report.price), ""))
        console.print()
        console.print(_price(report.price))
    for note in report.notes:
        _print(console, ("note: ", "bold yellow"), (note, ""))
    for finding in report.findings:
        console.print()
        _finding(console, finding)
    if report.suppressed:
        console.print()
        known = plural(report.suppressed, "known finding")
        _print(console, (f"{known} left out: the baseline has them.", "dim"))
    _modules(console, report)
    _predictions(console, report)
    _ranks(console, report)
    if report.opaque:
        console.print()
        _print(console, ("Not looked into, so not known to be clean:", "bold"))
        for region in report.opaque:
            _print(console, (f"  {opaque_text(region)}", ""))


def _print(console: Console, *pieces: tuple[str, str]) -> None:
    console.print(_text(*pieces), soft_wrap=False)


def _text(*pieces: tuple[str, str]) -> Text:
    text = Text(overflow="fold")
    for piece, style in pieces:
        text.append(visible(piece, limit=2000), style=style)
    return text


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index else "left", overflow="fold")
    return table


def _price(price: Price) -> Padding:
    table = _table("", "stock", "cured", "change")
    for figure in figures(price):
        style = "green" if figure.better else "" if figure.even else "red"
        table.add_row(
            figure.name, figure.stock_text, figure.cured_text, _text((figure.change, style))
        )
    return Padding(table, (0, 0, 0, 2), expand=False)


def _finding(console: Console, finding: Finding) -> None:
    code = codes.explain(finding.code)
    _print(
        console,
        (finding.code, _LEVEL_STYLES[code.level]),
        (f"  {finding.place}", "bold"),
        (f"  {code.title}", ""),
    )
    body = Text(overflow="fold")

    def line(*pieces: tuple[str, str]) -> None:
        if body:
            body.append("\n")
        body.append_text(_text(*pieces))

    if finding.source:
        line(("│ ", "dim"), (finding.source.strip(), "cyan"))
    if finding.message:
        line((finding.message, ""))
    line((f"{module_name(finding.module)} · {finding.operator} · {tensor_text(finding)}", ""))
    often = happens_text(finding)
    line((f"base {bytes_text(finding.bytes)}, {often}: {cost_text(finding)}", ""))
    line((verdict_text(finding), "green" if finding.verdict == "hidden" else ""))
    if finding.made_by is not None:
        line((f"view made by {_origin(finding.made_by)}", "dim"))
    if finding.saved_by is not None:
        line((f"saved by {_origin(finding.saved_by)}", ""))
    if finding.versions is not None:
        line(("version {} when saved, {} when read in backward".format(*finding.versions), ""))
    if finding.hook is not None:
        line((f"hook registered by {_origin(finding.hook)}", ""))
    if finding.ranks:
        line((f"ranks {', '.join(map(str, finding.ranks))}", "dim"))
    line(("→ ", "bold green"), (finding.cure or code.cure, ""))
    console.print(Padding(body, (0, 0, 0, 2), expand=False))


def _origin(origin: Origin) -> str:
    place = f" at {origin.file}:{origin.line}" if origin.file else ""
    source = f"  {origin.source.strip()}" if origin.source else ""
    return f"{origin.operator}{place}{source}"


def _modules(console: Console, report: Report) -> None:
    if report.price is None or not report.price.modules:
        return
    table = _table("by module, stock → cured", "copies", "moved", "peak")
    ordered = sorted(
        report.price.modules, key=lambda m: m.stock.bytes_moved - m.cured.bytes_moved, reverse=True
    )
    for module in ordered[:MODULES]:
        stock, cured = module.stock, module.cured
        table.add_row(
            _text((module_name(module.module), "")),
            _arrow(count_text(stock.copies), count_text(cured.copies)),
            _arrow(bytes_text(stock.bytes_moved), bytes_text(cured.bytes_moved)),
            _arrow(bytes_text(stock.peak_bytes), bytes_text(cured.peak_bytes)),
        )
    console.print()
    console.print(table)
    if len(ordered) > MODULES:
        _print(console, (f"and {plural(len(ordered) - MODULES, 'more module')}", "dim"))


def _arrow(stock: str, cured: str) -> str:
    return stock if stock == cured else f"{stock} → {cured}"


def _predictions(console: Console, report: Report) -> None:
    if not report.predictions:
        return
    table = _table("savings", "predicted", "measured", "borne out")
    for prediction in report.predictions:
        name = prediction.quantity.replace("_", " ")
        if prediction.module:
            name += f" in {prediction.module}"
        held = prediction.borne_out
        table.add_row(
            _text((name, "")),
            amount_text(prediction.predicted, prediction.unit),
            amount_text(prediction.measured, prediction.unit),
            _text(("yes", "green") if held else ("no", "bold red")),
        )
    console.print()
    console.print(table)
    if not all(prediction.borne_out for prediction in report.predictions):
        console.print(_text((MISSED, "dim")))


def _ranks(console: Console, report: Report) -> None:
    if not report.ranks:
        return
    table = _table("rank", "findings", "time", "copies", "peak", "cured time")
    for summary in report.ranks:
        host = f" on {summary.rank.host}" if summary.rank.host else ""
        table.add_row(
            _text((f"{summary.rank.rank}{host}", "")),
            count_text(summary.findings),
            *measurement_cells(summary.stock),
            measurement_cells(summary.cured)[0],
        )
    console.print()
    console.print(table)
