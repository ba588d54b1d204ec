"""The report as Chrome trace events, which Perfetto and chrome://tracing open.

One process per rank, one track per thread: steps, modules, in-place lines and the copies they are
charged with. An arrow leads from an in-place line in forward to each of its copies in backward,
and the measured memory curves are counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noalias.audit.codec import Json, dumps
from noalias.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noalias.audit.result import Report, Slice

MICROSECONDS = 1e6
_COLORS = {"copy": "terrible", "in_place": "bad", "backward": "grey", "step": "good"}


def render(report: Report) -> str:
    """Trace events in JSON's object format; times in microseconds."""
    process = report.rank.rank if report.rank is not None else 0
    events = [
        *_names(report, process),
        *_slices(report, process),
        *_arrows(report, process),
        *_memory(report, process),
    ]
    return dumps(
        {
            "traceEvents": events,
            "displayTimeUnit": "ms",
            "otherData": {
                "tool": f"noalias {report.environment.noalias}".strip(),
                "torch": report.environment.torch,
                "program": visible(" ".join(report.argv)),
            },
        },
        indent=None,
    )


def _names(report: Report, process: int) -> Iterator[Json]:
    name = f"rank {process}" if report.rank is not None else "noalias audit"
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for thread in sorted({piece.thread for piece in report.timeline}):
        label = "training thread" if thread == 0 else f"thread {thread}"
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": process,
            "tid": thread,
            "args": {"name": label},
        }


def _slices(report: Report, process: int) -> Iterator[Json]:
    for piece in report.timeline:
        details: dict[str, Json] = {}
        if piece.bytes:
            details["bytes"] = piece.bytes
        if piece.file:
            details["line"] = visible(f"{piece.file}:{piece.line}")
        if piece.module:
            details["module"] = visible(piece.module)
        if piece.code:
            details["code"] = visible(piece.code)
        event: dict[str, Json] = {
            "ph": "X",
            "name": visible(piece.name),
            "cat": piece.kind,
            "ts": piece.start * MICROSECONDS,
            "dur": piece.duration * MICROSECONDS,
            "pid": process,
            "tid": piece.thread,
            "args": details,
        }
        if piece.kind in _COLORS:
            event["cname"] = _COLORS[piece.kind]
        yield event


def _arrows(report: Report, process: int) -> Iterator[Json]:
    """A flow's ends bind to the slice that encloses them, so each lies in its slice's middle."""
    for index, piece in enumerate(report.timeline):
        if piece.cause is None or not 0 <= piece.cause < len(report.timeline):
            continue
        flow: dict[str, Json] = {"name": "causes", "cat": "alias", "id": index, "pid": process}
        cause = report.timeline[piece.cause]
        yield {**flow, "ph": "s", "ts": _middle(cause), "tid": cause.thread}
        yield {**flow, "ph": "f", "bp": "e", "ts": _middle(piece), "tid": piece.thread}


def _middle(piece: Slice) -> float:
    return (piece.start + piece.duration / 2) * MICROSECONDS


def _memory(report: Report, process: int) -> Iterator[Json]:
    if report.memory is None:
        return
    for name, curve in (("stock", report.memory.before), ("cured", report.memory.after)):
        for seconds, size in curve:
            yield {
                "ph": "C",
                "name": f"live bytes, {name}",
                "ts": seconds * MICROSECONDS,
                "pid": process,
                "args": {"bytes": size},
            }
