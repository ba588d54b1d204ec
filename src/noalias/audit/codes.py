"""The codes of findings: what each means, what it costs, how it is cured.

The one source for the text report, the HTML report, SARIF rules, `noalias explain` and the heads of
the pages in docs/codes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noalias.audit.finding import Finding


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding.

    `level` is SARIF's: ``note`` for what costs nothing by itself, ``warning`` for what costs time
    or memory, ``error`` for what is wrong or raises. `default`: whether it is reported unasked.
    """

    id: str
    title: str
    meaning: str
    cost: str
    cure: str
    level: Literal["note", "warning", "error"] = "warning"
    default: bool = True


_ALL = (
    Code(
        "NA101",
        "in-place on a hidden base",
        "An in-place operator writes to a view whose base nobody can name: it was a temporary "
        "inside the operator or expression that made the view. PyTorch keeps the base's history "
        "all the same.",
        "Backward runs CopySlices and AsStrided: about four copies of the base, one zero fill and "
        "two extra buffers for each such line.",
        "Call noalias.enable(): the view drops its hidden base, the gradients stay bit-identical. "
        "Without noalias: the out-of-place operator.",
    ),
    Code(
        "NA102",
        "in-place on an observable base",
        "An in-place operator writes to a view, and something else still sees the base: another "
        "name, a saved value, a hook, numpy. The history is needed, so it stays.",
        "The same copies in backward as for a hidden base. The history has to stay; in a loop of "
        "writes enable() takes away the copy of the whole base that each of them makes.",
        "If the observers that the report names need not see what is written, write out of place, "
        "or drop them before this line. If they must, make the base anew from its parts, and go "
        "on with that one.",
    ),
    Code(
        "NA201",
        "slice updates in a loop",
        "A loop fills a tensor slice by slice (out[t] = h). Each update is a node that, in "
        "backward, clones the gradient of the whole tensor.",
        "T updates cost T whole copies: time and traffic grow with T squared.",
        "Call noalias.enable(): the update reuses the gradient buffer when nobody else holds it. "
        "Without noalias: collect the slices in a list and call torch.stack once.",
    ),
    Code(
        "NA202",
        "slice reads in a loop",
        "A loop reads a tensor slice by slice (x[t]). In backward each read makes a zero-filled "
        "gradient of the whole tensor and adds it up.",
        "T reads cost T zero fills and T additions of the whole tensor: quadratic in T.",
        "Call noalias.enable(): the reads share one backward node and one buffer. Without "
        "noalias: x.unbind(dim) once, before the loop.",
    ),
    Code(
        "NA301",
        "a hook that stock PyTorch drops",
        "A hook was set on a view, and an in-place operator then rewrote the view's history. The "
        "hook stays on a node that backward no longer passes.",
        "The hook never runs, with no error: what it computes, logs or gathers is missing. FSDP2's "
        "pre-backward hook is one of these.",
        "Call noalias.enable(), which moves the hook along where the base is hidden. Without "
        "noalias: set the hook after the in-place line, or use the out-of-place operator.",
        level="error",
    ),
    Code(
        "NA302",
        "in-place on a view raises",
        "PyTorch refuses this in-place operator: the view was made by a custom Function, by an "
        "operator with several outputs, under no_grad, or of a leaf that requires grad.",
        "The program stops at this line.",
        "Call noalias.enable() where the base is hidden: the write is then legal and right. Else "
        "use the out-of-place operator or clone the view first.",
        level="error",
    ),
    Code(
        "NA303",
        "a saved value was modified in place",
        "An operator saved a tensor for its backward, and a later line wrote to that tensor or to "
        "an alias of it. Backward sees that the version counter moved, and raises.",
        'Backward stops with "modified by an inplace operation".',
        "Write to a copy, made between the line that saved and the one that modifies, and go on "
        "with it. No cure may remove this error: it guards the gradient.",
        level="error",
    ),
    Code(
        "NA401",
        "a module returns a view of a hidden base",
        "A module's output is a differentiable view of a temporary. It costs nothing until "
        "somebody writes to it in place.",
        "None by itself; the next in-place operator on it becomes NA101, or raises.",
        "Nothing, if nobody writes to it. For a library: return the result of reshape on an "
        "out-of-place operator, or noalias.linear instead of F.linear.",
        level="note",
        default=False,
    ),
)

CODES: dict[str, Code] = {code.id: code for code in _ALL}
"""Every code by its name, in order."""

ERRORS = ("NA302", "NA303")
"""Codes of what raises: counted over a whole run, and paid by nobody."""


def explain(code: str) -> Code:
    """The code called `code`; one made up on the spot for a name that this version lacks."""
    known = CODES.get(code)
    if known is not None:
        return known
    unknown = "This code is not known to the installed noalias; a newer one may have written it."
    return Code(code, "unknown code", unknown, "", "", level="note")


def expand(prefixes: Iterable[str]) -> frozenset[str]:
    """All codes that start with one of `prefixes`, e.g. ``NA2`` for NA201 and NA202.

    Raises:
        ValueError: a prefix that no code starts with; names it and lists the codes.
    """
    found: set[str] = set()
    for prefix in prefixes:
        matching = {code for code in CODES if prefix and code.startswith(prefix.strip().upper())}
        if not matching:
            raise ValueError(f"no code starts with {prefix!r}; the codes are {', '.join(CODES)}")
        found |= matching
    return frozenset(found)


def wanted(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> frozenset[str]:
    """The codes to report: those selected (by default all that are on), less those ignored."""
    selected = expand(select) or frozenset(c.id for c in _ALL if c.default)
    return selected - expand(ignore)


def filter_findings(
    findings: Iterable[Finding], select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> tuple[Finding, ...]:
    """The findings whose codes `wanted(select, ignore)` names, in their order."""
    codes = wanted(select, ignore)
    return tuple(finding for finding in findings if finding.code in codes)
