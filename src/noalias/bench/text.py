"""Numbers as the tables print them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Union

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noalias.bench.machine import Machine

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]


def seconds(value: float) -> str:
    """With the unit that leaves one to three digits before the point."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if abs(value) * factor >= 1:
            return f"{_three_digits(value * factor)} {unit}"
    return f"{_three_digits(value * 1e6)} µs"


def size(value: int) -> str:
    """Bytes, in the binary unit that leaves one to four digits before the point."""
    amount = float(value)
    for unit in ("B", "KiB", "MiB"):
        if abs(amount) < 1024:
            return f"{_three_digits(amount)} {unit}" if unit != "B" else f"{value} B"
        amount /= 1024
    if abs(amount) < 10:
        return f"{amount * 1024:.0f} MiB"
    return f"{_three_digits(amount)} GiB"


def milliseconds(value: float) -> str:
    """Seconds, for a column in milliseconds."""
    return _three_digits(value * 1e3)


def mebibytes(value: int) -> str:
    """Bytes, for a column in MiB."""
    return _three_digits(value / 2**20)


def change(before: int | float, after: int | float) -> str:
    """Two numbers, from one to the other."""
    return f"{_three_digits(before)} → {_three_digits(after)}"


def _three_digits(value: float) -> str:
    magnitude = abs(value)
    if isinstance(value, int) or magnitude >= 100:
        return f"{value:.0f}"
    return f"{value:.{1 if magnitude >= 10 else 2}f}"


def grid(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = ""
) -> Table:
    """A table whose first column is text and whose others are numbers. No markup is read.

    Cells are never broken: a terminal that is too narrow wraps whole lines.
    """
    table = Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        caption=Text(caption) if caption else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def heading(machine: Machine) -> str:
    """The one line printed above every table."""
    threads = f"{machine.threads} thread" + ("s" if machine.threads != 1 else "")
    load = "" if machine.load is None else f", load {machine.load}"
    return (
        f"{machine.processor}, {machine.cores} cores, {threads}{load}; device {machine.device}; "
        f"torch {machine.torch}, Python {machine.python}, noalias {machine.noalias}"
    )


def to_json(value: object) -> Json:
    """Dataclasses by their fields (or their own `to_json`), collections by their elements.

    Raises:
        TypeError: for a value that JSON has no form for.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    own = getattr(value, "to_json", None)
    if own is not None:
        return to_json(own())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return {name: to_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    raise TypeError(f"{value!r} has no JSON form; give it a to_json method or make it a dataclass")
