"""The findings part of the HTML report: the sortable overview and one article for each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from noalias.audit import codes
from noalias.audit.finding import Excerpt
from noalias.audit.report import graph_svg
from noalias.audit.report.headline import (
    cost_text,
    happens_text,
    module_name,
    tensor_text,
    verdict_text,
)
from noalias.audit.report.markup import Markup, join, tag
from noalias.audit.report.units import bytes_text, count_text
from noalias.visible import tail, visible

if TYPE_CHECKING:
    from noalias.audit.finding import Finding, Origin
    from noalias.audit.result import Report

_COLUMNS = (
    ("Code", "text"),
    ("Where", "text"),
    ("Module", "text"),
    ("Operator", "text"),
    ("Verdict", "text"),
    ("Per step", "number"),
    ("Copies", "number"),
    ("Moved", "number"),
    ("Extra peak", "number"),
)

_WIDE = frozenset({"Costs", "Module"})

_CELL = 48
"""Characters of a path in the overview; the article below has all of it."""

_TOKEN = re.compile(
    r"(?P<comment>\#.*)"
    r"|(?P<string>\"[^\"\\]*(?:\\.[^\"\\]*)*\"|'[^'\\]*(?:\\.[^'\\]*)*')"
    r"|(?P<keyword>\b(?:and|as|assert|async|await|break|class|continue|def|del|elif|else|except"
    r"|False|finally|for|from|global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise"
    r"|return|True|try|while|with|yield)\b)"
    r"|(?P<number>\b\d[\d_.eExXa-fA-F]*\b)"
)


def overview(report: Report) -> Markup | None:
    """The table of all findings; the page's script sorts it by any column."""
    if not report.findings:
        return None
    heads = [tag("th", name, scope="col", class_=kind, data_kind=kind) for name, kind in _COLUMNS]
    rows = [_row(index, finding) for index, finding in enumerate(report.findings)]
    return tag(
        "section",
        tag("h2", "Findings"),
        tag(
            "p",
            "Costs are predicted, for one step. Select a column's name to sort by it.",
            class_="muted",
        ),
        tag(
            "div",
            tag(
                "table",
                tag("thead", tag("tr", heads)),
                tag("tbody", rows),
                class_="sortable",
                id="findings",
            ),
            class_="scroll",
        ),
    )


def details(report: Report) -> Markup:
    """One article for each finding."""
    return join([_article(index, finding) for index, finding in enumerate(report.findings)])


def _row(index: int, finding: Finding) -> Markup:
    cells: tuple[tuple[Markup | str, str | int], ...] = (
        (_badge(finding.code, f"#finding-{index + 1}"), finding.code),
        (tag("code", short_place(finding)), finding.place),
        (tag("code", tail(module_name(finding.module), _CELL)), finding.module),
        (tag("code", tail(finding.operator, _CELL)), finding.operator),
        (tag("span", finding.verdict, class_=f"verdict {finding.verdict}"), finding.verdict),
        (count_text(finding.count), finding.count),
        (count_text(finding.copies), finding.copies),
        (bytes_text(finding.bytes_moved), finding.bytes_moved),
        (bytes_text(finding.extra_peak_bytes), finding.extra_peak_bytes),
    )
    return tag(
        "tr",
        [
            tag("td", content, class_=kind, data_label=name, data_key=str(key))
            for (content, key), (name, kind) in zip(cells, _COLUMNS, strict=True)
        ],
    )


def short_place(finding: Finding) -> str:
    """The last two parts of the file's path, with the line."""
    parts = finding.place.replace("\\", "/").split("/")
    return tail("/".join(parts[-2:]), _CELL)


def _badge(code: str, href: str | None = None) -> Markup:
    level = codes.explain(code).level
    if href is None:
        return tag("span", code, class_=f"badge {level}")
    return tag("a", code, href=href, class_=f"badge {level}")


def _article(index: int, finding: Finding) -> Markup:
    code = codes.explain(finding.code)
    return tag(
        "article",
        tag(
            "header",
            _badge(finding.code),
            tag("h3", code.title),
            tag("code", finding.place, class_="place"),
        ),
        tag("p", prose(finding.message)) if finding.message else None,
        _source(finding),
        [
            _origin(label, origin)
            for label, origin in (
                ("View made by", finding.made_by),
                ("Saved by", finding.saved_by),
                ("Hook registered by", finding.hook),
            )
            if origin is not None
        ],
        tag("dl", [_fact(name, value) for name, value in _facts(finding)], class_="facts"),
        tag(
            "div",
            tag("p", tag("strong", "What to do. "), prose(finding.cure or code.cure)),
            tag("p", tag("strong", "Why it costs. "), code.cost, class_="muted"),
            class_="cure",
        ),
        _graphs(finding),
        class_="finding",
        id=f"finding-{index + 1}",
    )


def _facts(finding: Finding) -> list[tuple[str, str | Markup]]:
    facts: list[tuple[str, str | Markup]] = [
        ("Module", tag("code", module_name(finding.module))),
        ("Operator", tag("code", finding.operator)),
        ("Tensor", tag("code", tensor_text(finding))),
        ("Base", bytes_text(finding.bytes)),
        ("Happens", happens_text(finding)),
        ("Costs", cost_text(finding)),
        ("Base seen", prose(verdict_text(finding))),
    ]
    if finding.versions is not None:
        saved, read = finding.versions
        facts.append(("Version", f"{saved} when saved, {read} when read in backward"))
    if finding.ranks:
        facts.append(("Ranks", ", ".join(map(str, finding.ranks))))
    return facts


def _fact(name: str, value: str | Markup) -> Markup:
    class_ = "full" if name == "Base seen" else "wide" if name in _WIDE else None
    return tag("div", tag("dt", name), tag("dd", value), class_=class_)


def prose(text: str) -> Markup:
    """A sentence in which what stands between backquotes is set as code."""
    pieces = visible(text, limit=2000).split("`")
    if len(pieces) % 2 == 0:
        return join(text)
    return join([tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)])


def _source(finding: Finding) -> Markup | None:
    excerpt = finding.excerpt
    if excerpt is None or not excerpt.lines:
        if not finding.source:
            return None
        excerpt = Excerpt(max(finding.line, 1), (finding.source,))
    shared = _indentation(excerpt.lines)
    lines = []
    for number, text in enumerate(excerpt.lines, excerpt.first_line):
        class_ = "line here" if number == finding.line else "line"
        lines.append(
            tag("span", tag("span", number, class_="no"), highlight(text[shared:]), class_=class_)
        )
    return tag("pre", tag("code", lines), class_="source", tabindex=0)


def _indentation(lines: tuple[str, ...]) -> int:
    """Leading blanks that all lines share, so that deep code starts at the left."""
    widths = [len(text) - len(text.lstrip(" ")) for text in lines if text.strip()]
    return min(widths, default=0)


def highlight(text: str) -> Markup:
    """One line of Python with its comments, strings, keywords and numbers marked."""
    text = visible(text, limit=400)
    pieces: list[Markup | str] = []
    end = 0
    for match in _TOKEN.finditer(text):
        pieces.append(text[end : match.start()])
        pieces.append(tag("span", match.group(), class_=f"t-{match.lastgroup}"))
        end = match.end()
    pieces.append(text[end:])
    return join(*pieces)


def _origin(label: str, origin: Origin) -> Markup:
    place = f"{origin.file}:{origin.line}" if origin.line > 0 else origin.file
    return tag(
        "p",
        tag("span", f"{label} ", class_="muted"),
        tag("code", origin.operator),
        [tag("span", " at ", class_="muted"), tag("code", place)] if place else None,
        tag("code", highlight(origin.source.strip()), class_="quoted") if origin.source else None,
        class_="origin",
    )


def _graphs(finding: Finding) -> Markup | None:
    if finding.graph is None:
        return None
    return tag(
        "div",
        tag(
            "figure",
            tag("figcaption", "Backward graph, stock"),
            tag(
                "div",
                graph_svg.draw(finding.graph.before, "Backward graph in stock PyTorch"),
                class_="scroll",
            ),
        ),
        tag(
            "figure",
            tag("figcaption", "with the cure"),
            tag(
                "div",
                graph_svg.draw(finding.graph.after, "Backward graph with the cure"),
                class_="scroll",
            ),
        ),
        class_="graphs",
    )
