"""Draws live memory over one step, before and after the cures, as inline SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noalias.audit.report.markup import Markup, join, tag
from noalias.audit.report.units import bytes_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noalias.audit.result import MemoryCurve

    Points = Sequence[tuple[float, int]]

MOST_POINTS = 600
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The plot's size in pixels and its scales."""

    width: float
    height: float
    seconds: float
    bytes: float
    left: float = 64
    right: float = 12
    top: float = 18
    bottom: float = 26

    def x(self, seconds: float) -> float:
        return self.left + seconds / self.seconds * (self.width - self.left - self.right)

    def y(self, size: float) -> float:
        return (
            self.height - self.bottom - size / self.bytes * (self.height - self.top - self.bottom)
        )


def draw(curve: MemoryCurve) -> Markup:
    """The chart in a wide and a narrow version; the style sheet shows the one that fits."""
    before, after = _clean(curve.before), _clean(curve.after)
    if not before and not after:
        return Markup("")
    wide = _chart(before, after, 960, 250, "wide")
    return join(wide, _chart(before, after, 350, 230, "narrow"))


def thin(points: Points, most: int = MOST_POINTS) -> list[tuple[float, int]]:
    """At most about `most` points that keep the lowest and the highest of each stretch."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / (most / 2))
    kept: list[tuple[float, int]] = []
    for start in range(0, len(points), size):
        stretch = range(start, min(start + size, len(points)))
        ends = {min(stretch, key=lambda i: points[i][1]), max(stretch, key=lambda i: points[i][1])}
        kept.extend(points[i] for i in sorted(ends))
    return kept


def ticks(largest: float, wanted: int, base: float = 1000.0) -> list[float]:
    """Round values from 0 up to at most `largest`, about `wanted` of them.

    They are 1, 2, 2.5 or 5 times a power of ten, in units of a power of `base`.
    """
    if largest <= 0 or not math.isfinite(largest):
        return [0.0]
    unit = base ** math.floor(math.log(largest, base)) if largest >= 1 else 1.0
    raw = largest / unit / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * 0.999) * unit
    return [step * i for i in range(int(largest / step) + 1)]


def _clean(points: Points) -> list[tuple[float, int]]:
    return thin(sorted((max(0.0, t), max(0, size)) for t, size in points))


def _chart(before: Points, after: Points, width: int, height: int, class_: str) -> Markup:
    highest = max(size for _, size in (*before, *after))
    seconds = max(t for t, _ in (*before, *after)) or 1e-6
    frame = _Frame(width, height, seconds, max(highest * 1.04, 1))
    few = width < 500
    unit = next(((size, name) for size, name in _UNITS if seconds >= size), _UNITS[-1])
    return tag(
        "svg",
        tag("title", _title(before, after)),
        [_level(frame, size) for size in ticks(highest, 5, 1024.0)],
        [_time(frame, t, *unit) for t in ticks(seconds / unit[0], 4 if few else 8) if t],
        _line(frame, before, "stock"),
        _line(frame, after, "cured"),
        _peaks(frame, before, after),
        class_=f"memory {class_}",
        role="img",
        viewBox=f"0 0 {width} {height}",
    )


def _title(before: Points, after: Points) -> str:
    parts = [
        f"{name} peak {bytes_text(max(size for _, size in points))}"
        for name, points in (("stock", before), ("cured", after))
        if points
    ]
    return f"Live memory over one step: {', '.join(parts)}"


def _level(frame: _Frame, size: float) -> Markup:
    y = frame.y(size)
    return tag(
        "g",
        tag("line", x1=frame.left, x2=frame.width - frame.right, y1=y, y2=y),
        tag("text", bytes_text(size), x=frame.left - 8, y=y + 4, text_anchor="end"),
        class_="axis",
    )


def _time(frame: _Frame, value: float, unit: float, name: str) -> Markup:
    x = frame.x(value * unit)
    # A label at the right end would run out of the picture when centred.
    anchor = "end" if x > frame.width - 40 else "middle"
    label = tag("text", f"{value:g} {name}", x=x, y=frame.height - 6, text_anchor=anchor)
    return tag("g", label, class_="axis")


def _line(frame: _Frame, points: Points, class_: str) -> Markup:
    """A staircase: memory changes at an allocation and stays until the next."""
    if not points:
        return Markup("")
    x, y = frame.x(points[0][0]), frame.y(points[0][1])
    drawn = [f"M{x:.1f} {y:.1f}"]
    for t, size in points[1:]:
        drawn.append(f"H{frame.x(t):.1f}V{frame.y(size):.1f}")
    end = frame.x(points[-1][0])
    floor = frame.y(0)
    outline = Markup("".join(drawn))
    return tag(
        "g",
        tag("path", d=Markup(f"{outline}L{end:.1f} {floor:.1f}H{x:.1f}Z"), class_="area"),
        tag("path", d=outline, class_="line"),
        class_=class_,
    )


def _peaks(frame: _Frame, before: Points, after: Points) -> list[Markup]:
    marks: list[Markup] = []
    taken: list[tuple[float, float]] = []
    for points, class_ in ((before, "stock"), (after, "cured")):
        if not points:
            continue
        t, size = max(points, key=lambda point: point[1])
        x, y = frame.x(t), frame.y(size)
        label = f"{class_} peak {bytes_text(size)}"
        room = len(label) * 6.6 + 14
        to_left = x + room > frame.width - frame.right
        text_x, text_y = (x - 8 if to_left else x + 8), max(y - 6, 12.0)
        start = text_x - room if to_left else text_x
        while any(abs(text_y - y2) < 14 and abs(start - x2) < room for x2, y2 in taken):
            text_y += 15
        taken.append((start, text_y))
        marks.append(
            tag(
                "g",
                tag("circle", cx=x, cy=y, r=3.5),
                tag("text", label, x=text_x, y=text_y, text_anchor="end" if to_left else "start"),
                class_=f"peak {class_}",
            )
        )
    return marks
