"""``noalias explain``: what a saved traceback or error text means, and what to do."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from noalias.complaint import complain

if TYPE_CHECKING:
    from rich.console import Console

    from noalias.audit.explanations import Explanation

SUMMARY = "Say what a saved traceback or error text means, and what to do about it."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n"
        "  noalias explain crash.log\n"
        "  python train.py 2>&1 | noalias explain\n"
        "  noalias explain NA201\n\n"
        "exit codes: 0 explained, 1 not known, 2 nothing to read"
    )
    parser.add_argument(
        "text",
        nargs="*",
        help="a file with the traceback, the text of the error, or a code; - or nothing: "
        "standard input",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    try:
        text = _read(args.text)
    except (OSError, ValueError) as error:
        complain(f"noalias explain: {error}")
        return 2
    if not text.strip():
        print("noalias explain: the text is empty", file=sys.stderr)
        return 2
    from noalias.audit.messages import explain

    found = explain(text)
    if args.format == "json":
        from noalias.audit.codec import dumps, encode

        sys.stdout.write(dumps({"schema_version": 1, "explanations": encode(found)}))
    elif unknown := _unknown_code(text):
        complain(f"noalias explain: {unknown}")
    else:
        from noalias.audit.report.output import to_terminal

        to_terminal(lambda console: show(found, console))
    return 0 if found else 1


def _unknown_code(text: str) -> str:
    """What to say of a text that is a code, but none of ours; "" of every other text."""
    from noalias.audit.codes import CODES

    word = text.strip()
    if not re.fullmatch(r"NA\d+", word) or word in CODES:
        return ""
    return f"no code is called {word}; the codes are {', '.join(CODES)}"


def show(found: list[Explanation], console: Console) -> None:
    """Print explanations, or say that there is none."""
    from rich.padding import Padding
    from rich.text import Text

    from noalias.visible import visible

    if not found:
        console.print(
            "This text holds no message that noalias knows. It explains errors and warnings about "
            "views, in-place operators and freed graphs, and its own; this is something else."
        )
    for index, explanation in enumerate(found):
        if index:
            console.print()
        console.print(Text(visible(explanation.title), style="bold"))
        body = Text()
        for label, value in explanation.facts:
            body.append(f"{label}: ", style="dim").append(f"{visible(value)}\n")
        body.append(f"{visible(explanation.meaning, 2000)}\n")
        for fix in explanation.fixes:
            body.append("→ ", style="bold green").append(f"{visible(fix, 2000)}\n")
        if explanation.code and explanation.code != explanation.message:
            body.append(f"code {explanation.code}", style="dim")
        body.rstrip()
        console.print(Padding(body, (0, 0, 0, 2), expand=False))


def _read(words: list[str]) -> str:
    """The text to explain, from a file, standard input, or the words themselves."""
    if words in ([], ["-"]):
        if not words and sys.stdin.isatty():
            raise ValueError("give a file, a text, or pipe a traceback in; see --help")
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    if len(words) > 1:
        return " ".join(words)
    word = words[0]
    if "\x00" not in word and len(word) < 4096 and "\n" not in word:
        path = Path(word)
        if path.is_file():
            return path.read_bytes().decode("utf-8", "replace")
        if path.is_dir():
            raise ValueError(f"{word} is a folder; give the file with the traceback")
        if " " not in word and (os.sep in word or path.suffix in (".txt", ".log", ".err", ".out")):
            raise ValueError(f"there is no file {word}")
    return word
