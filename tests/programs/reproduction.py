"""A failing program as a file a person can run, read and paste."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from .compare import differences
from .oracle import Verdict
from .record import Record
from .source import PREAMBLE, function_source
from .statements import Program, dumps


def write(folder: Path, program: Program, verdict: Verdict, cures: str, origin: str) -> Path:
    """Writes ``NAME.py`` (runnable from the repository's root) and ``NAME.json`` (for
    tests/programs/kept).
    """
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    what = re.sub(r"\W+", "_", verdict.what or verdict.kind)[:50].strip("_")
    name = f"{what}_{re.sub(r'[^0-9]+', '_', origin).strip('_')}"
    shown = "\n".join(str(item) for item in verdict.differences[:4]) or "the cured run crashes"
    header = f'"""{origin}, torch {torch.__version__}, cures: {cures}\n\n{shown}\n"""\n\n'.replace(
        "\\", "\\\\"
    )
    footer = (
        '\n\nif __name__ == "__main__":\n    from tests.programs.reproduction import show\n\n'
        f'    show(program, "{cures}")\n'
    )
    path = folder / f"{name}.py"
    imports = f"{PREAMBLE}\nfrom tests.programs.support import *\n\n\n"
    text = f"{header}{imports}{function_source(program)}{footer}"
    path.write_text(text, encoding="utf-8")
    path.with_suffix(".json").write_text(dumps(program), encoding="utf-8")
    return path


def show(program: Callable[[Record], None], cures: str) -> None:
    """Runs a pasted program on stock and cured and prints where they differ."""
    from .cures import cure

    runs = []
    for names in ("none", cures):
        record = Record()
        with cure(names)():
            try:
                program(record)
            except Exception as error:
                record.error("uncaught", error)
            record.finish()
        runs.append(record.entries)
    stock, cured = runs
    print("\n".join(map(str, differences(stock, cured))) or "no difference from stock")
