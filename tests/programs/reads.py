"""How often the elements of a program's tensors are read: may sums of gradients be reordered?"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .execute import execute
from .geometry import element_offsets
from .statements import Program


def sums_may_be_reordered(program: Program) -> bool:
    """True when some element's gradient is a sum over three reads or more, one of them a view.

    Two addends commute; three do not associate, so a node that collects the gradients of sibling
    views may round differently. Counted on a stock run, element by element and version by version.
    """
    with _ReadCounter() as counter, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        execute(program)
    return counter.reordered()


class _ReadCounter(TorchDispatchMode):
    """Counts the reads of each element of each tensor at each version; a view reads its part."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []
        self._counts: dict[tuple[int, int], Counter[int]] = {}
        self._viewed: set[tuple[int, int]] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        inputs = [item for item in tree_leaves((args, kwargs)) if isinstance(item, Tensor)]
        if not torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        keys = [self._key(item) for item in inputs]
        result = func(*args, **(kwargs or {}))
        outputs = [item for item in tree_leaves(result) if isinstance(item, Tensor)]
        is_view = func.is_view if hasattr(func, "is_view") else False
        for key in keys:
            if key is not None and is_view:
                self._viewed.add(key)
        for item, key in zip(
            outputs if is_view else inputs,
            keys[:1] * len(outputs) if is_view else keys,
            strict=False,
        ):
            if key is not None:
                self._counts.setdefault(key, Counter()).update(
                    element_offsets(item.size(), item.stride(), item.storage_offset())
                )
        self._kept += inputs + outputs
        return result

    def _key(self, x: Tensor) -> tuple[int, int] | None:
        return None if x.is_inference() else (id(x), x._version)

    def reordered(self) -> bool:
        return any(
            max(self._counts[key].values(), default=0) >= 3
            for key in self._viewed
            if key in self._counts
        )
