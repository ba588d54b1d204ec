"""What the commands say on stderr: names of files and other people's words, made safe to show."""

from __future__ import annotations

import sys

from noalias.visible import visible

LONGEST_LINE = 2_000


def complain(message: str) -> None:
    """Print `message` on stderr, with what is no printable text in it written as escapes."""
    print(printable(message), file=sys.stderr)


def printable(message: str) -> str:
    """`message` with its lines as they are, but for what a terminal would act on."""
    return "\n".join(visible(line, LONGEST_LINE) for line in message.split("\n"))
