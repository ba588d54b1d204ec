"""Which tensor subclasses have a rule of their own for ``noalias.linear``."""

from __future__ import annotations

import sys


def has_own_rule(cls: type) -> bool:
    """Whether ``cls`` is handed ``noalias.linear`` whole; registers the rule when first asked.

    True for ``DTensor`` alone, whose rule is :mod:`noalias.linear.sharding`. Its module is looked
    up and not imported: where nobody imported it, nobody has a ``DTensor``.
    """
    dtensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if cls is not dtensor:
        return False
    from noalias.linear import sharding

    sharding.register()
    return True
