"""Search the interpreter for whoever holds a tensor: names, containers, nodes of graphs."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterator, Sequence
from types import CellType, FrameType, ModuleType

import torch
from torch import Tensor
from torch.autograd.graph import Node

from noalias import graph, native


def live_tensors() -> list[Tensor]:
    """Every tensor that Python has an object for, in no order."""
    return native.load().live_tensors()


def names_of(value: object, ignore: object) -> Iterator[str]:
    """Names under which ``value`` is held: variables, attributes, entries of containers.

    ``ignore`` is a container of the caller's own, which does not count.
    """
    # Not our own: up to Python 3.12 a frame keeps the snapshot of its variables that is read here,
    # and that of this function's would hold the frame itself, and the value, in a cycle.
    frames = [frame for frame in running_frames() if not _is_ours(frame)]
    for frame in frames:
        for name, held in frame.f_locals.items():
            if held is value:
                yield f"the variable {name!r} in {frame.f_code.co_name}, line {frame.f_lineno}"
    snapshots = {id(f.f_locals) for f in frames if f.f_code.co_flags & inspect.CO_OPTIMIZED}
    for holder in gc.get_referrers(value):
        if holder is ignore or id(holder) in snapshots or isinstance(holder, FrameType):
            continue
        if isinstance(holder, dict):
            yield from _in_dict(holder, value)
        elif isinstance(holder, (list, tuple, set)):
            yield f"a {type(holder).__name__} of {len(holder)}"
        elif isinstance(holder, CellType):
            yield "a closure"
        else:
            yield from _in_attributes(holder, value)


def nodes_that_saved(tensor: Tensor, tensors: Sequence[Tensor]) -> Iterator[tuple[str, str]]:
    """(node, attribute) of every saved tensor over the memory of ``tensor``.

    Searches the graphs behind ``tensor`` and behind every one of ``tensors``, as far as this thread
    recorded them: another may be running the rest. A saved tensor that has been freed, or
    overwritten since, cannot be read and is passed over.
    """
    core = native.load()
    memory = tensor.untyped_storage()._cdata
    roots = [core.recorded_node(root) for root in (tensor, *tensors)]
    for node in graph.nodes(*(root for root in roots if root is not None)):
        if not core.is_of_this_thread(node):
            continue
        for attribute in _saved_attributes(node):
            saved = _read(node, attribute)
            if saved is not None and saved.untyped_storage()._cdata == memory:
                yield node.name(), attribute


def describe(tensor: Tensor, ignore: object) -> str:
    """One line about a tensor, with a name for it if there is one; ``ignore`` as above."""
    shape = "x".join(str(size) for size in tensor.shape) or "scalar"
    name = next(names_of(tensor, ignore), None)
    return f"{shape} {str(tensor.dtype).removeprefix('torch.')}{f' ({name})' if name else ''}"


def _saved_attributes(node: Node) -> list[str]:
    return [name for name in dir(node) if name.startswith("_saved_")]


def _read(node: Node, attribute: str) -> Tensor | None:
    try:
        value = getattr(node, attribute)
    except Exception:
        # Freed by a backward, overwritten in place, or packed by a hook of the program's own, which
        # may raise anything when asked to unpack: nothing to compare.
        return None
    return value if isinstance(value, Tensor) and value.layout is torch.strided else None


def _in_dict(holder: dict[object, object], value: object) -> Iterator[str]:
    owner = next(
        (thing for thing in gc.get_referrers(holder) if getattr(thing, "__dict__", None) is holder),
        None,
    )
    for key, held in list(holder.items()):
        if held is value:
            if isinstance(owner, ModuleType):
                yield f"the variable {key!r} of module {owner.__name__}"
            elif owner is not None:
                yield f"the attribute {key!r} of a {type(owner).__name__}"
            else:
                yield f"a dict, under {key!r}"


def _in_attributes(holder: object, value: object) -> Iterator[str]:
    # From Python 3.11 on an object may hold its attributes without a dict of its own.
    for key, held in getattr(holder, "__dict__", {}).items():
        if held is value:
            yield f"the attribute {key!r} of a {type(holder).__name__}"


def running_frames() -> Iterator[FrameType]:
    """The frames of every thread, each thread from its innermost outwards."""
    # Emptied on the way: a name left for the innermost, this function's own, would be a cycle that
    # keeps all outer frames and their variables until the next collection.
    frames: list[FrameType | None] = list(sys._current_frames().values())
    while frames:
        current = frames.pop()
        while current is not None:
            yield current
            current = current.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith("noalias.")
