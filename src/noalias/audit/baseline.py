"""A baseline: the findings a project already knows, so that only new ones are reported."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from noalias.audit.codec import FormatError, decode, dumps, encode, parse
from noalias.audit.finding import Finding

BASELINE_VERSION = 1


def relative_file(file: str, root: str | os.PathLike[str] | None = None) -> str:
    """`file` relative to `root` (default: the working directory) with forward slashes.

    A file outside `root` keeps its last two parts, so that a checkout or a virtual environment
    in another folder gives the same name.
    """
    base = Path(root) if root is not None else Path.cwd()
    if "\x00" in file or not file:
        return file
    path = Path(os.path.normpath(base / file))
    try:
        return path.relative_to(os.path.normpath(base.absolute())).as_posix()
    except ValueError:
        return PurePath(*path.parts[-2:]).as_posix()


def fingerprint(finding: Finding, root: str | os.PathLike[str] | None = None) -> str:
    """What makes two findings of two runs the same: code, file, source text, operator, module.

    Line numbers are left out, and so is white space within the source text, so that edits
    elsewhere in the file and reformatting do not make an old finding new.
    """
    parts = (
        finding.code,
        relative_file(finding.file, root),
        "".join(finding.source.split()),
        finding.operator,
        finding.module,
    )
    text = "\x1f".join(part.replace("\x1f", " ") for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Known:
    """One entry of a baseline file; all but `fingerprint` and `times` is for people."""

    fingerprint: str
    times: int = 1
    code: str = ""
    file: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times must be at least 1, got {self.times}")


@dataclass(frozen=True, slots=True)
class Baseline:
    """The known findings, by fingerprint and how many findings share it."""

    times: Mapping[str, int] = field(default_factory=dict)

    def split(
        self, findings: Iterable[Finding], root: str | os.PathLike[str] | None = None
    ) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """(new, known) findings. A third copy of a line known twice is new."""
        left = Counter(self.times)
        new: list[Finding] = []
        known: list[Finding] = []
        for finding in findings:
            print_ = fingerprint(finding, root)
            (known if left[print_] > 0 else new).append(finding)
            left[print_] -= 1
        return tuple(new), tuple(known)


@dataclass(frozen=True, slots=True)
class _File:
    noalias_baseline: int
    findings: tuple[Known, ...]


def read(path: str | os.PathLike[str]) -> Baseline:
    """Read a baseline file.

    Raises:
        FormatError: the file is no baseline, or damaged; names the file and the place.
        OSError: the file cannot be opened.
    """
    return loads(Path(path).read_bytes(), os.fspath(path))


def loads(text: str | bytes, name: str = "baseline") -> Baseline:
    """Read a baseline from its text; `name` stands for it in errors."""
    value = parse(text, name)
    if not isinstance(value, dict) or "noalias_baseline" not in value:
        raise FormatError(
            f"{name} is not a noalias baseline; write one with noalias audit --write-baseline"
        )
    content = decode(_File, value, name)
    if content.noalias_baseline != BASELINE_VERSION:
        raise FormatError(
            f"{name} is a baseline of version {content.noalias_baseline}, this noalias reads "
            f"version {BASELINE_VERSION}; write it anew"
        )
    times: Counter[str] = Counter()
    for known in content.findings:
        times[known.fingerprint] += known.times
    return Baseline(times)


def baseline_text(findings: Iterable[Finding], root: str | os.PathLike[str] | None = None) -> str:
    """The content of a baseline file that knows `findings`, ordered so that diffs stay small."""
    entries: dict[str, Known] = {}
    for finding in findings:
        key = fingerprint(finding, root)
        times = entries[key].times + 1 if key in entries else 1
        file = relative_file(finding.file, root)
        entries[key] = Known(key, times, finding.code, file, finding.source.strip())
    ordered = sorted(entries.values(), key=lambda e: (e.file, e.code, e.source, e.fingerprint))
    return dumps(encode(_File(BASELINE_VERSION, tuple(ordered))))


def write(
    path: str | os.PathLike[str],
    findings: Iterable[Finding],
    root: str | os.PathLike[str] | None = None,
) -> None:
    """Write a baseline that knows `findings`."""
    Path(path).write_text(baseline_text(findings, root), encoding="utf-8")
