"""Turns what the recorder has seen into findings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from noalias.audit import codes, excerpt
from noalias.audit.finding import Finding
from noalias.audit.line_change import out_of_place
from noalias.audit.sightings import LOOP, Key, Sighting

if TYPE_CHECKING:
    from noalias.audit.recorder import Recorder


def findings(recorder: Recorder) -> tuple[Finding, ...]:
    """One for each line, module, operator and code, those that pay most first."""
    made = [_finding(recorder, key, sighting) for key, sighting in recorder.told().items()]
    return tuple(sorted(made, key=lambda f: (-f.bytes_moved, f.file, f.line, f.code)))


def _finding(recorder: Recorder, key: Key, sighting: Sighting) -> Finding:
    steps = max(sighting.steps, 1)
    place = recorder.origin(key.operator, key.place)
    pays = key.code not in (*codes.ERRORS, "NA401")
    count = sighting.count if key.code in codes.ERRORS else math.ceil(sighting.count / steps)
    return Finding(
        code=key.code,
        file=place.file,
        line=place.line,
        module=recorder.modules.path(key.module),
        operator=key.operator,
        shape=sighting.shape,
        dtype=sighting.dtype,
        bytes=sighting.bytes,
        count=count,
        verdict=sighting.verdict,
        observers=sighting.observers,
        copies=math.ceil(sighting.copied / steps - 1e-9) if pays else 0,
        extra_peak_bytes=round(sighting.peak) if pays else 0,
        cure=_cure(key, sighting, place.source),
        source=place.source,
        made_by=sighting.made_by,
        message=_message(key, sighting, count),
        saved_by=sighting.saved_by,
        versions=sighting.versions,
        hook=sighting.hook,
        excerpt=excerpt.excerpt(place.file, place.line) if place.line else None,
        graph=sighting.graph,
    )


def _message(key: Key, sighting: Sighting, count: int) -> str:
    operator = _plain(key.operator)
    maker = _plain(sighting.made_by.operator) if sighting.made_by is not None else ""
    view = f"the view that {maker} made" if maker else "a view"
    if key.code == "NA101":
        return f"{operator} writes to {view}; nobody else can see its base."
    if key.code == "NA102":
        if sighting.verdict == "unknown":
            return f"{operator} rewrote the history of a base; who sees it could not be looked at."
        return f"{operator} writes to {view}, and its base is still seen."
    if key.code == "NA201":
        return f"{count} slice updates of one tensor: in backward each clones its whole gradient."
    if key.code == "NA202":
        return (
            f"{count} slices read from one tensor: in backward each makes a zero-filled gradient "
            "of all of it."
        )
    if key.code == "NA301":
        return f"a hook was set on {view}; {operator} then rewrote its history: it never runs."
    if key.code == "NA302":
        return sighting.detail
    if key.code == "NA303":
        saved = sighting.saved_by
        node = saved.operator if saved is not None else "a node"
        line = f" on line {saved.line}" if saved is not None and saved.line else ""
        return f"{operator or 'something'} overwrote a value that {node} had saved{line}."
    return f"the module returns the view that {operator} made of a temporary."


_ANEW = "else make the base anew from its parts (torch.cat, torch.where, index_copy)"


def _cure(key: Key, sighting: Sighting, source: str) -> str:
    operator = _plain(key.operator)
    away = out_of_place(operator, source)
    if key.code == "NA101":
        return f"noalias.enable(); without it, {away}"
    if key.code == "NA102":
        # Whoever reads the base afterwards reads what was written; out of place he would not.
        apart = f"where nothing reads the base after this line, {away}; {_ANEW}"
        if sighting.largest >= LOOP and sighting.verdict == "observable":
            return f"noalias.enable(): one copy for each write less; without it, {apart}"
        return apart
    if key.code == "NA201":
        return "noalias.enable(); without it, collect the slices and torch.stack them once"
    if key.code == "NA202":
        return "noalias.enable(); without it, unbind(dim) the tensor once before the loop"
    if key.code == "NA301":
        set_it = "set the hook after this line"
        return f"noalias.enable(), or {set_it}" if sighting.verdict == "hidden" else set_it
    if key.code == "NA302":
        if sighting.verdict == "hidden":
            return f"noalias.enable(): the write is then legal; without it, {away}"
        return f"{away}, or write to a clone()"
    if key.code == "NA303":
        return (
            "write to a copy: x = x.clone(), after what saved and before this line, and go on with "
            f"that x; or, where nothing else reads what this line writes to, {away}"
        )
    return ""


def _plain(operator: str) -> str:
    return operator.rpartition("::")[2]
