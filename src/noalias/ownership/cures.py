"""Switch the cures on and off, and say what they have done."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from noalias import native
from noalias.native.dispatch_cache import forget_resolved_kernels
from noalias.ownership import fsdp

if TYPE_CHECKING:
    from noalias.native.core import Core


@dataclass(frozen=True)
class Status:
    """What is active, and the counts since the process started or :func:`reset`.

    Attributes:
        active: the cures that are on.
        seen: in-place calls on a differentiable view whose history is at stake.
        cured: of these, how many dropped a hidden base.
        kept: of these, how many kept their base, by reason (``python_name``,
            ``shared_storage``, ...; :func:`noalias.explain` says them in words).
        counts: further counts of single cures, by name.
    """

    active: tuple[str, ...]
    seen: int
    cured: int
    kept: dict[str, int]
    counts: dict[str, int]

    def __str__(self) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.kept.items() if count)
        further = "".join(f"\n{name}: {count}" for name, count in self.counts.items() if count)
        return (
            f"active: {', '.join(self.active) or 'nothing'}\n"
            f"in-place calls on a view: {self.seen} seen, {self.cured} cured"
            f"{f', kept: {reasons}' if reasons else ''}"
            f"{_LINEAR if 'linear' in self.active else ''}{further}"
        )


# Else a program whose only hidden bases are linear's reads as if nothing had been done for it.
_LINEAR = " (not among them: results of linear, which are no views now)"


def enable(*cures: str) -> None:
    """Switch cures on for the whole process, all of them where none is named.

    Gradients stay those of stock PyTorch. What is already on stays on; any thread may call it.
    ``torch.compile``, ``torch.export`` and tensor subclasses go on seeing stock PyTorch, but for
    ``linear`` on a ``DTensor``, which has a rule of its own.

    Args:
        cures: names out of ``hidden_base``, ``linear``, ``slice_update``, ``sibling_views``,
            ``owned_gradient``.

    Raises:
        TypeError: a name that is no string; nothing is switched then.
        ValueError: a name that is no cure; nothing is switched then.
        noalias.native.NativeUnavailable: the core cannot be built; the message says how to help it.
    """
    core = native.load()
    chosen = _checked(cures, core.known_cures())
    if "linear" in chosen:
        # The operator that F.linear is routed to: its schemas and kernels.
        from noalias.linear import op

        op.require_core()
    for cure in chosen:
        core.enable_cure(cure)
    forget_resolved_kernels()
    fsdp.watch()


def disable(*cures: str) -> None:
    """Switch cures off, all of them where none is named, and give PyTorch's kernels back exactly.

    Graphs recorded before keep their nodes and stay valid; ``disable`` in mid-graph is legal.

    Raises:
        ValueError: a name that is no cure; nothing is switched then.
    """
    if not native.is_loaded() and not cures:
        return  # nothing can be on
    core = native.load()
    _switch_off(core, _checked(cures, core.known_cures()))


def _switch_off(core: Core, cures: Iterable[str]) -> None:
    for cure in cures:
        core.disable_cure(cure)
    forget_resolved_kernels()


@contextmanager
def enabled(*cures: str) -> Iterator[None]:
    """Cures on inside the block, as they were before after it. Process-wide, as :func:`enable`.

    Raises:
        ValueError: a name that is no cure.
        noalias.native.NativeUnavailable: the core cannot be built.
    """
    core = native.load()
    wanted = _checked(cures, core.known_cures())
    added = [cure for cure in wanted if cure not in core.active_cures()]
    enable(*wanted)
    try:
        yield
    finally:
        _switch_off(core, added)


def status() -> Status:
    """What is active and what it has done so far. Builds and loads nothing."""
    if not native.is_loaded():
        return Status(active=(), seen=0, cured=0, kept={}, counts={})
    core = native.load()
    counts = dict(core.counters())
    kept = {
        name.removeprefix("kept_"): counts.pop(name)
        for name in list(counts)
        if name.startswith("kept_")
    }
    return Status(
        active=tuple(core.active_cures()),
        seen=counts.pop("seen"),
        cured=counts.pop("cured"),
        kept=kept,
        counts=counts,
    )


def reset() -> None:
    """Set the counts of :func:`status` to zero; what is active stays active."""
    if native.is_loaded():
        native.load().reset_counters()


def _checked(names: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"noalias: a cure is named by a string, got {name!r}; several are several "
                'arguments: enable("hidden_base", "linear")'
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"noalias has no cure {name!r}{hint} (there are {', '.join(known)})")
    return list(names or known)
