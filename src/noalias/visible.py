"""Makes text from a stranger's program safe to show: file names, source lines, module names."""

from __future__ import annotations

import unicodedata

LONGEST = 240
"""Characters shown of one piece of text unless told otherwise."""

# Cc: terminal escapes. Cf: bidirectional overrides and zero-width characters, with which a line can
# be made to look like another. Cs: lone surrogates, which are bytes of a file name that were no
# UTF-8 and which no encoder takes. Zl, Zp: line ends that str.splitlines does not agree on.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, limit: int = LONGEST) -> str:
    """`text` on one line, with every character that does not show itself written as an escape.

    Tabs become spaces. What is longer than `limit` characters is cut, and the cut says so.
    """
    cut = len(text) - limit
    if cut > 0:
        text = text[:limit]
    if not (text.isascii() and text.isprintable()):
        text = "".join(map(_shown, text))
    return f"{text}… (+{cut} characters)" if cut > 0 else text


def tail(text: str, limit: int) -> str:
    """The last `limit` characters of a path made visible; its telling part stands at the end."""
    return visible(text) if len(text) <= limit else f"…{visible(text[-limit:])}"


def _shown(character: str) -> str:
    if character == "\t":
        return "    "
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: the byte itself
        return f"\\x{code - 0xDC00:02x}"
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
