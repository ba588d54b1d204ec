"""A profiled step as slices for the Chrome trace: which copies are owed to which in-place line."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from noalias.audit.result import Slice

if TYPE_CHECKING:
    from noalias.audit.recorder import Recorder
    from noalias.audit.step_profile import StepProfile

MOST = 4000
"""Slices of one kind that are kept: a loop of a million copies would make a trace that no viewer
opens."""


def timeline(recorder: Recorder, step: StepProfile) -> tuple[Slice, ...]:
    """Slices of one step, times in seconds from its start."""
    path = recorder.modules.path
    slices = [Slice("step", "step", 0.0, step.whole.seconds)]
    if step.backward is not None:
        began, ended = step.backward
        slices.append(Slice("backward", "backward", began, ended - began))
    for stretch in step.stretches[:MOST]:
        name = path(stretch.module)
        slices.append(Slice(name, "module", stretch.start, stretch.duration, module=name))
    codes = {
        (key.place, key.module): key.code
        for key in recorder.told()
        if key.code in ("NA101", "NA102", "NA201", "NA301")
    }
    causes: list[tuple[int, int]] = []  # (sequence number, index in the timeline)
    for call in step.in_place:
        code = codes.get((call.place, call.module))
        if code is None or len(causes) >= MOST:
            continue
        file, line = recorder.core.file_and_line(call.place)
        causes.append((call.number, len(slices)))
        slices.append(
            Slice(
                call.name.rpartition("::")[2],
                "in_place",
                call.start,
                call.duration,
                file=file,
                line=line,
                module=path(call.module),
                code=code,
            )
        )
    causes.sort()
    for copy in step.copies[:MOST]:
        # A rewritten history was made by the last in-place call at or below its number.
        at = bisect_right(causes, (copy.rewrite, len(slices))) - 1 if copy.rewrite >= 0 else -1
        slices.append(
            Slice(
                "copy_",
                "copy",
                copy.start,
                copy.duration,
                bytes=copy.bytes,
                module=path(copy.module),
                cause=causes[at][1] if at >= 0 else None,
            )
        )
    return tuple(slices)
