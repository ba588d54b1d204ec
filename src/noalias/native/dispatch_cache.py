"""PyTorch's Python operators remember which kernel a key led to; make them look again.

``torch._ops.OpOverload`` keeps in ``_dispatch_cache`` (private, PyTorch 2.9 to 2.15) what a
dispatch key was resolved to, and tracing calls kernels by it. The guards of the core are
registered for keys such as ``AutogradCPU``; an operator that was resolved to one while it was
there would, once it is gone, be led to the fallback for operators without a derivative. Where
the attribute does not exist there is nothing that could be stale.
"""

from __future__ import annotations

import torch


def forget_resolved_kernels() -> None:
    """Clear what the operators in use have resolved. Call it after kernels came or went."""
    for namespace in (torch.ops.aten, torch.ops.noalias):
        for packet in list(vars(namespace).values()):
            if isinstance(packet, torch._ops.OpOverloadPacket):
                for overload in list(vars(packet).values()):
                    if isinstance(overload, torch._ops.OpOverload):
                        getattr(overload, "_dispatch_cache", {}).clear()
