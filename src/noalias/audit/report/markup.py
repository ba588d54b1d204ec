"""Markup that cannot be injected into: text is escaped unless it was made here."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, TypeAlias

from noalias.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence


class Markup(str):
    """A string that is HTML or SVG already."""

    __slots__ = ()


Content: TypeAlias = "str | int | float | None | Sequence[Content]"

LONGEST = 600
"""Characters of one string that are shown; what is longer is cut and says so."""

_VOID = frozenset({"br", "hr", "meta", "col"})


def tag(name: str, /, *content: Content, **attributes: str | int | float | bool | None) -> Markup:
    """One element. Plain strings in `content` and attribute values are made visible, cut at
    `LONGEST` characters and escaped; `Markup` is taken as it is.

    Attribute names lose a trailing underscore (``class_``) and turn others into hyphens. None and
    False leave an attribute out, True writes it without a value.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        written.append(f" {label}" if value is True else f' {label}="{_piece(value)}"')
    opening = f"<{name}{''.join(written)}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """The pieces one after the other, plain strings escaped."""
    return Markup("".join(_piece(piece) for piece in content))


def _piece(piece: Content) -> str:
    if isinstance(piece, Markup):
        return piece
    if piece is None:
        return ""
    if isinstance(piece, (str, int, float)):
        return _escaped(_number(piece))
    return join(*piece)


def _number(value: str | int | float) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _escaped(text: str) -> str:
    return html.escape(visible(text, limit=LONGEST), quote=True)
