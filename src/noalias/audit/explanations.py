"""One function for each message about views and in-place operators: what it means, what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noalias.audit.codes import CODES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noalias.audit.traceback_text import SavedText


@dataclass(frozen=True, slots=True)
class Explanation:
    """One message explained.

    `message` is its text as found, `facts` what can be read from it, `fixes` what to do, the
    likeliest first, `code` the audit's code for the same thing.
    """

    title: str
    message: str
    meaning: str
    fixes: tuple[str, ...]
    facts: tuple[tuple[str, str], ...] = ()
    code: str = ""


def saved_value_modified(match: re.Match[str], saved: SavedText) -> Explanation:
    found, expected = int(match["found"]), int(match["expected"])
    writes = found - expected
    times = "once" if writes == 1 else f"{writes} times"
    facts = [("tensor", f"{match['type']} {match['shape']}")]
    if match["node"]:
        facts.append(("made by", f"output {match['output']} of {match['node']}"))
    if writes > 0:
        facts.append(("written", f"{times} after it was saved (version {expected} to {found})"))
    anomaly = saved.anomaly()
    if anomaly is not None:
        node, forward = anomaly
        facts.append(("backward failed in", node))
        if forward is not None:
            facts.append(("its forward line", str(forward)))
    facts.extend(_where(saved, "backward called at"))
    meaning = (
        "An operator saved this tensor for its backward, and afterwards something wrote to the "
        "tensor's memory, directly or through a view of it. "
    )
    node = _stem(match["node"] or "")
    if node in SAVES_RESULT:
        meaning += f"{node} saves its own result, so it is most likely the one that needs it. "
    elif match["node"]:
        meaning += (
            f"The message names {node}, which made the tensor; that is neither the line that "
            "saved it nor the line that wrote to it. "
        )
    else:
        meaning += "It is a leaf: an input or a parameter. "
    fixes = [
        "run noalias audit on the program: it names the line that wrote, the line that saved, and "
        "both versions (NA303)",
        "on the line that wrote, use the out-of-place operator: relu(x) for relu_(x), x = x + y "
        "for x += y, clone() before x[i] = v",
    ]
    if not match["node"] or node in _VIEWS:
        fixes.append(
            "if the tensor is a parameter or a transposed weight: call every backward() that needs "
            "it before optimizer.step(), which writes to parameters in place"
        )
    return Explanation(
        "A value saved for backward was modified in place",
        match[0],
        meaning.strip(),
        tuple(fixes),
        tuple(facts),
        "NA303",
    )


def view_modified(match: re.Match[str], saved: SavedText) -> Explanation:
    node = match["node"]
    stem = _stem(node)
    facts = [("view", f"output {match['output']} of {node}"), *_where(saved, "modified at")]
    enable = (
        "noalias.enable() before the forward: where nobody else can see the base, the write is "
        "legal and the gradient right"
    )
    out_of_place = "the out-of-place operator on that line: relu(x) for relu_(x), x = x + y"
    if "multiple views" in match["rest"]:
        meaning = (
            f"{stem} returned several views of one tensor at once. PyTorch cannot track a write to "
            "one of them in the history of the others, and refuses."
        )
        fixes = (out_of_place, enable, "index instead of splitting: x[0] can be written to")
    elif stem.startswith("BackwardHookFunction"):
        meaning = (
            "A full backward hook is registered on a module. PyTorch passes its output through a "
            "custom Function, whose result is a view, and an in-place operator then writes to it."
        )
        fixes = (
            enable,
            "inplace=False on the activation that follows the module with the hook",
            "a tensor hook on the output (register_forward_hook, then out.register_hook)",
        )
    elif "Checkpoint" in stem:
        meaning = (
            "Reentrant activation checkpointing returns its result from a custom Function, as a "
            "view, and an in-place operator then writes to it."
        )
        fixes = ("checkpoint(..., use_reentrant=False)", enable, out_of_place)
    else:
        meaning = (
            f"{stem} is a custom autograd Function that returned a view, or its input as it was. "
            "Tracking the write would replace the Function's own backward, so PyTorch refuses."
        )
        fixes = (
            enable,
            out_of_place,
            "clone() the output at the end of the Function's forward",
        )
    return Explanation(
        "In-place on a view that PyTorch refuses", match[0], meaning, fixes, tuple(facts), "NA302"
    )


def view_made_under_mode(match: re.Match[str], saved: SavedText) -> Explanation:
    mode = match["mode"].replace("inference", "inference_mode")
    return Explanation(
        f"In-place on a view that was made under {mode}",
        match[0],
        f"The view was made with {mode} on, so it has no history, and is now written to with grad "
        "mode on. PyTorch cannot tell whether the write should be part of the graph.",
        (
            f"make the view outside the {mode} block, if the write should be differentiated",
            f"move the write into the {mode} block, if it should not",
            "noalias.enable(), where nobody else can see the view's base",
        ),
        tuple(_where(saved, "modified at")),
        "NA302",
    )


def leaf_modified(match: re.Match[str], saved: SavedText) -> Explanation:
    view = bool(match["view"])
    what = "a view of a leaf" if view else "a leaf"
    return Explanation(
        f"In-place on {what} that requires grad",
        match[0],
        f"The line writes to {what} tensor that requires grad: a parameter or an input. Its old "
        "value is what the gradient is taken for, so writing to it inside the graph has no "
        "meaning. No cure may lift this.",
        (
            "to set or initialise values: write under torch.no_grad()",
            "to compute with a changed value: x = x.clone() first, then write to the clone",
            "for a tensor that needs no gradient: requires_grad_(False), or requires_grad_() only "
            "after it is filled",
        ),
        tuple(_where(saved, "modified at")),
        "NA302",
    )


def second_backward(match: re.Match[str], saved: SavedText) -> Explanation:
    return Explanation(
        "A second backward through a graph that was freed",
        match[0],
        "Backward frees the values that the graph saved. This backward reached a part of the graph "
        "that an earlier one had already been through.",
        (
            "a state carried from step to step (an RNN's hidden state, a running loss): detach() "
            "it at the end of the step",
            "something computed once, outside the loop, and used in every step: compute it inside",
            "two losses over one forward: add them and call backward() once",
            "retain_graph=True on the first backward, if two are meant; it keeps the saved values "
            "in memory",
        ),
        tuple(_where(saved, "backward called at")),
    )


def fsdp_returned_view(match: re.Match[str], saved: SavedText) -> Explanation:
    return Explanation(
        "An FSDP2 module returns a view, and its hook can be lost",
        match[0],
        "FSDP2 sets a hook on the output, to gather the parameters before backward. The output is "
        "a view; an in-place operator on it would leave the hook on a node that backward no longer "
        "passes, and the parameters would not be gathered.",
        (
            "noalias.enable(): a view of a hidden base loses its base at the in-place operator, "
            "and the hook moves along",
            "out = out + y for out += y on this module's output",
            "clone() the output, at the price of one copy of it",
        ),
        (("module", match["module"]), *_where(saved, "at")),
        "NA301",
    )


def inference_tensor(match: re.Match[str], saved: SavedText) -> Explanation:
    return Explanation(
        "In-place on a tensor made under inference_mode",
        match[0],
        "A tensor made under torch.inference_mode has no version counter and can never be part of "
        "a graph, so it may not be written to outside.",
        (
            "clone() it once, outside the block",
            "torch.no_grad() instead of torch.inference_mode(), where training uses the result",
        ),
        tuple(_where(saved, "modified at")),
    )


def detached_view(match: re.Match[str], saved: SavedText) -> Explanation:
    return Explanation(
        "detach_() on a view",
        match[0],
        "detach_() would cut a view off in place, and its base would still have the history.",
        (
            "x = x.detach()",
            "for gradients of DistributedDataParallel (gradient_as_bucket_view): zero_grad()",
        ),
        tuple(_where(saved, "called at")),
    )


def shared_elements(match: re.Match[str], saved: SavedText) -> Explanation:
    return Explanation(
        "In-place on a tensor whose elements share memory",
        match[0],
        "The tensor was expanded: several of its elements are the same place in memory, so a write "
        "to one is a write to all.",
        ("clone() or contiguous() before writing", "the out-of-place operator"),
        tuple(_where(saved, "modified at")),
    )


def core_unavailable(match: re.Match[str], saved: SavedText) -> Explanation:
    fix = _after(saved, "fix:")
    log = _after(saved, "log:")
    facts = (("compiler's log", log),) if log else ()
    return Explanation(
        "noalias' C++ core could not be built or loaded",
        match[0],
        "noalias.linear goes on through its Python composite, with the same results. enable(), run "
        "and audit need the core.",
        (fix or "noalias doctor: it says what is missing and how to get it",),
        facts,
    )


def finding_code(match: re.Match[str], saved: SavedText) -> Explanation:
    code = CODES[match[0]]
    return Explanation(
        f"{code.id}: {code.title}",
        match[0],
        f"{code.meaning} {code.cost}",
        (code.cure,),
        (),
        code.id,
    )


def _where(saved: SavedText, label: str) -> Iterator[tuple[str, str]]:
    frame = saved.user_line()
    if frame is not None:
        yield label, str(frame)


def _after(saved: SavedText, label: str) -> str:
    """The rest of the line that starts with `label`."""
    for line in saved.lines:
        if line.strip().startswith(label):
            return line.strip().removeprefix(label).strip()
    return ""


def _stem(node: str) -> str:
    """``Exp`` for ``ExpBackward0``; other names as they are, without their C++ namespace."""
    return re.sub(r"Backward\d*$", "", node.rpartition("::")[2])


SAVES_RESULT = frozenset(
    {
        "Cumprod", "Exp", "Expm1", "Exp2", "LogSoftmax", "Pow", "Reciprocal", "Relu", "Rsqrt",
        "Sigmoid", "Softmax", "Sqrt", "Tan", "Tanh",
    }
)  # fmt: skip
"""Operators whose backward needs their own result, so that writing to the result breaks them."""

_VIEWS = frozenset({"AsStrided", "Permute", "T", "Transpose", "View", "UnsafeView"})
