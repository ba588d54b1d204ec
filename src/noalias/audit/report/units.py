"""Numbers as people read them: bytes in binary units, seconds in the unit that fits."""

from __future__ import annotations


def bytes_text(value: float) -> str:
    """``0 B``, ``512 B``, ``1.5 MiB``, ``12 GiB``; a minus sign for negative values."""
    sign, size = ("−" if value < 0 else ""), abs(value)
    if size < 1024:
        return f"{sign}{size:.0f} B"
    units = iter(("KiB", "MiB", "GiB", "TiB"))
    unit, size = next(units), size / 1024
    for larger in units:
        if size < 999.5:
            break
        unit, size = larger, size / 1024
    number = f"{size:.0f}" if size >= 99.95 else f"{size:.1f}".removesuffix(".0")
    return f"{sign}{number} {unit}"


def seconds_text(value: float) -> str:
    """``850 µs``, ``16.4 ms``, ``2.10 s``."""
    sign, time = ("−" if value < 0 else ""), abs(value)
    if time < 0.9995e-3:
        return f"{sign}{time * 1e6:.0f} µs"
    if time < 0.9995:
        return f"{sign}{_three(time * 1e3)} ms"
    return f"{sign}{_three(time)} s"


def count_text(value: float) -> str:
    """An integer with thin spaces between thousands; one decimal where it is no integer."""
    text = f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
    return text.replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", "−")


def change_text(before: float, after: float) -> str:
    """The change from `before` to `after`: ``−26 %``, ``+3 %``, ``same``, ``gone``, ``new``."""
    if before == after:
        return "same"
    if after == 0:
        return "gone"
    if before == 0:
        return "new"
    percent = (after - before) / before * 100
    if abs(percent) < 0.5:
        return "same"
    if percent > 900:
        return f"× {after / before:.0f}"
    return f"{'−' if percent < 0 else '+'}{abs(percent):.0f} %"


def amount_text(value: float, unit: str) -> str:
    """`value` in `unit`: ``bytes``, ``seconds``, or "" for a count."""
    if unit == "bytes":
        return bytes_text(value)
    return seconds_text(value) if unit == "seconds" else count_text(value)


def plural(count: int, one: str, many: str = "") -> str:
    """``1 copy``, ``2 copies``: the count with the right form of the noun."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


def _three(value: float) -> str:
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f}"
