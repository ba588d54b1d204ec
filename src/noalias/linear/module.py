"""``nn.Linear`` on the whole operator, and the way there and back for a whole model."""

from __future__ import annotations

from torch import Tensor, nn

from noalias.linear.op import linear


class Linear(nn.Linear):
    """A :class:`torch.nn.Linear` whose output is no differentiable view; same parameters and state.

    Input ``[*, in_features]``, output ``[*, out_features]``, dtypes and errors of
    :func:`noalias.linear`.
    """

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def convert(module: nn.Module, *, undo: bool = False) -> nn.Module:
    """Turn every ``nn.Linear`` in ``module`` into a :class:`Linear`, in place, or back (``undo``).

    Parameters, buffers, hooks and names stay as they are: only the class changes. Subclasses of
    ``nn.Linear`` have a forward of their own and are left alone.

    Args:
        module: any module, itself a ``nn.Linear`` or not.
        undo: turn :class:`Linear` back into ``nn.Linear``.

    Returns:
        The module it was given.

    Raises:
        TypeError: ``module`` is no ``nn.Module``.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"noalias.convert: module must be an nn.Module, not {type(module).__name__}"
        )
    found, wanted = (Linear, nn.Linear) if undo else (nn.Linear, Linear)
    for part in module.modules():
        if type(part) is found:
            part.__class__ = wanted
    return module
