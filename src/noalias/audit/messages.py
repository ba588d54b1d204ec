"""What PyTorch's messages about views and in-place operators mean, and noalias' own.

The wordings are those of PyTorch 2.9 to 2.15. From 2.13 on the messages name the operator
(``Exp``) where they named its node (``ExpBackward0``).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noalias.audit.codes import CODES
from noalias.audit.explanations import (
    Explanation,
    core_unavailable,
    detached_view,
    finding_code,
    fsdp_returned_view,
    inference_tensor,
    leaf_modified,
    saved_value_modified,
    second_backward,
    shared_elements,
    view_made_under_mode,
    view_modified,
)
from noalias.audit.traceback_text import SavedText

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 50
"""Occurrences of one kind of message that are looked at; a log repeats itself."""

_NODE = r"(?P<node>[\w:.<>]{1,200})"


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    explain: Callable[[re.Match[str], SavedText], Explanation]


def explain(text: str) -> list[Explanation]:
    """Every message in `text` that is known, in order of appearance, each kind once."""
    saved = SavedText.of(text)
    found: list[tuple[int, Explanation]] = []
    claimed: list[tuple[int, int]] = []
    for rule in _RULES:
        for match in itertools.islice(rule.pattern.finditer(saved.flat), _MOST):
            start, end = match.span()
            if any(start < e and s < end for s, e in claimed):
                continue
            claimed.append((start, end))
            found.append((start, rule.explain(match, saved)))
    found.sort(key=lambda pair: pair[0])
    return list(dict.fromkeys(explanation for _, explanation in found))


_RULES = (
    _Rule(
        re.compile(
            r"one of the variables needed for gradient computation has been modified by an inplace "
            r"operation: \[(?P<type>[\w.]{1,80}) (?P<shape>\[[\d, ]{0,200}\])\]"
            rf"(?:, which is output (?P<output>\d{{1,9}}) of {_NODE},)? is at version "
            r"(?P<found>\d{1,18}); expected version (?P<expected>\d{1,18})(?: instead)?"
        ),
        saved_value_modified,
    ),
    _Rule(
        re.compile(
            rf"Output (?P<output>\d{{1,9}}) of {_NODE} is a view and is being modified inplace\. "
            r"(?P<rest>This view (?:is the output of a function that returns multiple views"
            r"|was created inside a custom Function))"
        ),
        view_modified,
    ),
    _Rule(
        re.compile(
            rf"(?:Output \d{{1,9}} of {_NODE} is a view of a view which was created in"
            r"|A view was created in) (?P<mode>no_grad|inference) mode and is being modified "
            r"inplace"
        ),
        view_made_under_mode,
    ),
    _Rule(
        re.compile(rf"Output (?P<output>\d{{1,9}}) of {_NODE} is a view and is being modified "
                   r"inplace(?P<rest>)"),
        view_modified,
    ),
    _Rule(
        re.compile(
            r"a (?P<view>view of a )?leaf Variable that requires grad (?:is being|has been) used "
            r"in an in-place operation"
        ),
        leaf_modified,
    ),
    _Rule(re.compile(r"Trying to backward through the graph a second time"), second_backward),
    _Rule(
        re.compile(r"FSDP2-wrapped module \((?P<module>[^)]{0,400})\) returned a view tensor"),
        fsdp_returned_view,
    ),
    _Rule(re.compile(r"Inplace update to inference tensor outside Inference"), inference_tensor),
    _Rule(re.compile(r"Can't detach views in-place"), detached_view),
    _Rule(
        re.compile(r"more than one element of the written-to tensor refers to a single memory"),
        shared_elements,
    ),
    _Rule(re.compile(r"the noalias core is not available: .{0,300}?(?= fix:|$)"), core_unavailable),
    *(_Rule(re.compile(rf"\b{code}\b"), finding_code) for code in CODES),
)  # fmt: skip
