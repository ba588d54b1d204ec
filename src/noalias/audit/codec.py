"""Frozen dataclasses to JSON and back, with errors that name the place of a bad value."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
T = TypeVar("T")

LARGEST = 2**63 - 1
"""No byte, count or second in a file may be larger: what is read can be computed with."""


class FormatError(ValueError):
    """A file or text that should hold noalias JSON does not. The message names the place."""


def parse(text: str | bytes, what: str) -> Json:
    """Parse `text` as strict JSON (no NaN, no infinities); `what` names it in errors."""
    try:
        value: Json = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise FormatError(f"{what} is nested too deeply to be read") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise FormatError(f"{what} is not JSON: {error}") from None
    return value


def dumps(value: Json, *, indent: int | None = 2) -> str:
    """JSON text in ASCII, so that no name in it can upset a terminal or an encoding."""
    separators = None if indent else (",", ":")
    text = json.dumps(
        value, indent=indent, separators=separators, allow_nan=False, ensure_ascii=True
    )
    return text + "\n"


def encode(value: object) -> Json:
    """A dataclass, mapping, sequence or scalar as JSON values; floats must be finite."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} has no JSON form; leave the measurement out instead")
        return value
    if dataclasses.is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    raise TypeError(f"cannot write {type(value).__name__} as JSON")


def decode(kind: type[T], value: Json, where: str) -> T:
    """Build the dataclass `kind` from JSON values.

    Keys that `kind` does not know are ignored, so that a reader keeps working when a later
    version of the same schema adds some. A missing key without a default, and a value of the
    wrong type, raise `FormatError` naming the place, e.g. ``report.findings[3].line``.
    """
    return typing.cast("T", _decode(kind, value, where))


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


@functools.cache
def _hints(kind: type) -> dict[str, object]:
    return typing.get_type_hints(kind)


def _decode(kind: object, value: Json, where: str) -> object:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, value, where)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        inner = [a for a in arguments if a is not type(None)]
        return _decode(inner[0], value, where)
    if origin is typing.Literal:
        if value not in arguments or isinstance(value, bool):
            choices = ", ".join(repr(a) for a in arguments)
            raise FormatError(f"{where} must be one of {choices}, got {_shown(value)}")
        return value
    if origin in (tuple, list):
        return _decode_sequence(origin, arguments, value, where)
    if origin is dict:
        members = _expect(dict, value, where)
        return {key: _decode(arguments[1], v, f"{where}.{key}") for key, v in members.items()}
    return _decode_scalar(kind, value, where)


def _decode_dataclass(kind: type, value: Json, where: str) -> object:
    members = _expect(dict, value, where)
    hints = _hints(kind)
    found: dict[str, object] = {}
    for field in dataclasses.fields(kind):
        if field.name in members:
            found[field.name] = _decode(
                hints[field.name], members[field.name], f"{where}.{field.name}"
            )
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise FormatError(f"{where} lacks the key {field.name!r}")
    try:
        return kind(**found)
    except ValueError as error:
        raise FormatError(f"{where}: {error}") from None


def _decode_sequence(
    origin: object, arguments: tuple[object, ...], value: Json, where: str
) -> object:
    items = _expect(list, value, where)
    if origin is list or arguments[-1] is Ellipsis:
        decoded = [_decode(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(items)]
        return decoded if origin is list else tuple(decoded)
    if len(items) != len(arguments):
        raise FormatError(f"{where} must have {len(arguments)} items, got {len(items)}")
    pairs = zip(arguments, items, strict=True)
    return tuple(_decode(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(pairs))


_NAMES = {
    int: "an integer",
    float: "a number",
    str: "a string",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _decode_scalar(kind: object, value: Json, where: str) -> object:
    assert isinstance(kind, type)
    if kind in (int, float) and isinstance(value, (int, float)) and not abs(value) <= LARGEST:
        raise FormatError(f"{where} is out of range: {_shown(value)}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return _expect(kind, value, where)


def _expect(kind: type[T], value: Json, where: str) -> T:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise FormatError(f"{where} must be {_NAMES[kind]}, got {_shown(value)}")
    return value


def _shown(value: Json) -> str:
    text = ascii(value) if not isinstance(value, (list, dict)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "..."
