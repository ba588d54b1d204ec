"""Reads saved tracebacks and logs: the messages in them and the user's lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST = 1_000_000
"""Characters that are read from the end of a text, which is where a traceback says what failed."""

_ESCAPES = re.compile(r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
# torchrun puts the rank before each line, and so do several launchers.
_PREFIX = re.compile(r"^[ \t]*\[(?:rank)?\d+\](?:\[[^\]\n]{0,80}\])?:[ ]?", re.MULTILINE)
_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"\n]{1,4096})", line (?P<line>\d{1,9})(?:, in (?P<in>.*))?'
)
# noalias lies in `src` where it is not installed; a folder of that name alone may be a checkout.
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/torch/", "/src/noalias/", "/lib/python")
_ANOMALY = re.compile(r"Error detected in (?P<node>[\w:.<>]{1,200})\.")


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a traceback, with its source line where the text has it."""

    file: str
    line: int
    function: str
    source: str

    @property
    def ours(self) -> bool:
        """Whether the frame is the user's: not of torch, an installed package or Python itself."""
        path = self.file.replace("\\", "/")
        return not path.startswith("<") and not any(part in path for part in _LIBRARIES)

    def __str__(self) -> str:
        text = f"{self.file}:{self.line}"
        return f"{text}  {self.source}" if self.source else text


@dataclass(frozen=True, slots=True)
class SavedText:
    """A text as people save it, in the two forms it is searched in.

    `flat` has all white space collapsed, so that a message is found however a terminal or a log
    wrapped it.
    """

    lines: tuple[str, ...]
    flat: str

    @classmethod
    def of(cls, text: str) -> SavedText:
        """Take terminal escapes, rank prefixes and all but the last `LONGEST` characters away."""
        text = _PREFIX.sub("", _ESCAPES.sub("", text[-LONGEST:]))
        return cls(tuple(text.splitlines()), " ".join(text.split()))

    def frames(self) -> list[Frame]:
        """Every frame in the text, in order."""
        found = []
        for index, line in enumerate(self.lines):
            match = _FRAME.match(line)
            if match is None:
                continue
            following = self.lines[index + 1].strip() if index + 1 < len(self.lines) else ""
            source = "" if _FRAME.match(following) or "Error" in following else following
            function = (match["in"] or "").strip()
            found.append(Frame(match["file"], int(match["line"]), function, source))
        return found

    def user_line(self) -> Frame | None:
        """The innermost frame of the user's in the last traceback: where the error was met."""
        ours = [frame for frame in self.frames() if frame.ours]
        return ours[-1] if ours else None

    def anomaly(self) -> tuple[str, Frame | None] | None:
        """What anomaly mode added: the node whose backward failed, and the forward line that
        made it. None where it was off."""
        for index, line in enumerate(self.lines):
            match = _ANOMALY.search(line)
            if match is None:
                continue
            rest = self.lines[index + 1 :]
            end = next(
                (i for i, text in enumerate(rest) if "Triggered internally" in text), len(rest)
            )
            forward = [f for f in SavedText(rest[:end], "").frames() if f.ours]
            return match["node"], forward[-1] if forward else None
        return None
