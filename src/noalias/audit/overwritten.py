"""Finds who overwrote a value that backward needs, and who had saved it (NA303)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from noalias import graph

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from noalias.native.core import Call, Core

_MESSAGE = re.compile(
    r"modified by an inplace operation: \[(?P<type>[\w.]+) \[(?P<shape>[\d, ]*)\]\]"
    r".*? is at version (?P<read>\d+); expected version (?P<saved>\d+)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Write:
    """The call that changed the value. `place` and `module` are numbers; 0 where not known."""

    op: str
    place: int
    module: int


@dataclass(frozen=True, slots=True)
class Overwritten:
    """A saved value that was modified, its node, and the call behind that node."""

    write: Write
    node: str
    saved: Call | None
    versions: tuple[int, int]
    shape: tuple[int, ...]
    dtype: str
    bytes: int


def find(core: Core, roots: Sequence[Tensor], error: BaseException) -> Overwritten | None:
    """What ``error``, out of a backward call on ``roots``, is owed to; None for other errors.

    The node is the one with the highest sequence number whose saved value cannot be read for the
    very reason that the error gives: the engine ran it first.
    """
    match = _MESSAGE.search(str(error)) if isinstance(error, RuntimeError) else None
    if match is None:
        return None
    versions = (int(match["saved"]), int(match["read"]))
    guilty = max(_refusing(roots, match[0]), key=lambda pair: pair[0]._sequence_nr(), default=None)
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    dtype = _dtype(match["type"])
    size = dtype.itemsize
    for length in shape:
        size *= length
    storage = 0
    if guilty is not None:
        storage = _storage(*guilty)
    saved = None
    if guilty is not None:
        saved = core.call_behind(guilty[0]._sequence_nr(), core.current_thread())
    return Overwritten(
        _first_write(core, storage, versions, shape),
        guilty[0].name() if guilty is not None else "",
        saved,
        versions,
        shape,
        str(dtype),
        size,
    )


def _first_write(
    core: Core, storage: int, versions: tuple[int, int], shape: tuple[int, ...]
) -> Write:
    """The first write after the value was saved. Without a storage to go by (PyTorch up to 2.9
    does not show that of a saved value) it is the last one that fits in version and size."""
    during = [
        write
        for write in core.writes_to(storage)
        if versions[0] <= write.version < versions[1]
        and (storage or torch.Size(write.shape).numel() == torch.Size(shape).numel())
    ]
    first = [write for write in during if write.version == versions[0]]
    if not during:
        return Write("", 0, 0)
    found = (first or during)[-1]
    return Write(found.op.partition(".")[0], found.place, found.module)


def _refusing(roots: Sequence[Tensor], message: str) -> Iterator[tuple[Node, str]]:
    for node in graph.nodes(*roots):
        for name in [name for name in dir(node) if name.startswith("_saved_")] or ["saved_tensors"]:
            try:
                getattr(node, name, None)
            except RuntimeError as error:
                if message in str(error):
                    yield node, name
                    break


def _storage(node: Node, attribute: str) -> int:
    """The address of the saved value's storage; 0 where this PyTorch does not tell."""
    raw: object = getattr(
        node, f"_raw{attribute}" if attribute[0] == "_" else "_raw_saved_tensors", None
    )
    for saved in raw if isinstance(raw, (tuple, list)) else (raw,):
        data = getattr(saved, "data", None)
        if isinstance(data, Tensor):
            address: int = data.untyped_storage()._cdata
            return address
    return 0


def _dtype(legacy: str) -> torch.dtype:
    """``torch.float32`` for ``torch.FloatTensor``, the type that the message gives."""
    name = legacy.rpartition(".")[2]
    kind = getattr(torch, name, None)
    dtype = getattr(kind, "dtype", None)
    if isinstance(dtype, torch.dtype):
        return dtype
    return {"ComplexFloatTensor": torch.complex64, "ComplexDoubleTensor": torch.complex128}.get(
        name, torch.float32
    )
