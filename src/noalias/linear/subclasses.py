"""Which tensor subclasses have a rule of their own for ``noalias.linear``."""

from __future__ import annotations

import sys


def is_distributed(cls: type) -> bool:
    """Whether ``cls`` is ``DTensor``; without side effects, for use under ``torch.compile``.

    Its module is looked up and not imported: where nobody imported it, nobody has a ``DTensor``.
    """
    return cls is getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)


def has_own_rule(cls: type) -> bool:
    """Whether ``cls`` is handed ``noalias.linear`` whole; registers the rule when first asked.

    True for ``DTensor`` alone, whose rule is :mod:`noalias.linear.sharding`.

    Raises:
        noalias.linear.sharding_compat.Unsupported: this PyTorch's DTensor has no place for it.
    """
    if not is_distributed(cls):
        return False
    from noalias.linear import sharding

    sharding.register()
    return True
