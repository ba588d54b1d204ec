"""How the parameters of an operator are drawn.

A sampler sees a stand-in tensor of the right shape and dtype and returns parameters, or None where
the operator makes no sense. It may ask for another operand; it need not be right always, since the
generator tries each statement once.
"""

from __future__ import annotations

from random import Random
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from .geometry import element_offsets
from .statements import Parameter, render_index

Drawn: TypeAlias = tuple[Parameter, ...] | None


class Operands(Protocol):
    """Where a sampler gets a second tensor from: an existing variable or a new leaf."""

    def operand(self, shape: tuple[int, ...], dtype: torch.dtype) -> str: ...


def none(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return ()


def dim(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (rng.randrange(-x.dim(), x.dim()),) if x.dim() else None


def new_dim(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (rng.randrange(x.dim() + 1),) if x.dim() < 4 else None


def two_dims(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return tuple(rng.sample(range(x.dim()), 2)) if x.dim() > 1 else None


def shape(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if rng.random() < 0.3:
        return ((-1,),) if x.numel() else ((x.numel(),),)
    return (factorise(rng, x.numel()),)


def factorise(rng: Random, numel: int) -> tuple[int, ...]:
    sizes: list[int] = []
    rest = numel
    while rest > 1 and len(sizes) < 3:
        sizes.append(rng.choice([n for n in range(1, rest + 1) if rest % n == 0]))
        rest //= sizes[-1]
    return (*sizes, rest)


def select(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    dims = [dim for dim in range(x.dim()) if x.size(dim)]
    if not dims:
        return None
    dim = rng.choice(dims)
    return dim, rng.randrange(-x.size(dim), x.size(dim))


def narrow(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if not x.dim():
        return None
    dim = rng.randrange(x.dim())
    start = rng.randrange(x.size(dim) + 1)
    return dim, start, rng.randint(min(1, x.size(dim) - start), x.size(dim) - start)


def index(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if not x.dim():
        return (("...",),)
    index: list[Parameter] = []
    for dim in range(rng.randint(1, x.dim())):
        size, kind = x.size(dim), rng.random()
        if kind < 0.35 and size:
            index.append(rng.randrange(-size, size))
        elif kind < 0.55:
            index.append((None, -1, None) if rng.random() < 0.5 else (1, None, None))
        elif kind < 0.75:
            start = rng.randrange(size + 1)
            index.append((start, rng.randint(start, size), None))
        elif kind < 0.9:
            index.append((rng.randrange(2), None, 2))
        else:
            index.append((None, None, None))
    if rng.random() < 0.2:
        index.insert(rng.choice([0, len(index)]), None)
    if rng.random() < 0.15:
        index.insert(0, "...")
    return (tuple(index),)


def expand(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    sizes = tuple(rng.randint(1, 3) if size == 1 else size for size in x.shape)
    return ((rng.randint(1, 2), *sizes) if x.dim() < 3 else sizes,)


def as_strided(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    """A geometry within the elements of ``x``.

    What a cured view reads beyond its elements has no history, which is a documented limit.
    """
    if not x.numel():
        return None
    rows = rng.randint(1, min(3, x.numel()))
    columns = rng.randint(1, x.numel() // rows)
    strides = (columns, 1) if rng.random() < 0.7 else (1, 1)
    inside = set(element_offsets(x.size(), x.stride()))
    if inside.issuperset(element_offsets((rows, columns), strides)):
        return (rows, columns), strides
    # Dense geometries leave what lies apart: x's own strides, over a part of each dimension.
    return tuple(rng.randint(1, size) for size in x.size()), tuple(x.stride())


def diagonal(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (rng.randint(-1, 1),) if x.dim() > 1 else None


def permute(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (tuple(rng.sample(range(x.dim()), x.dim())),)


def unfold(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    dims = [dim for dim in range(x.dim()) if x.size(dim) > 1]
    if not dims or x.dim() > 3:
        return None
    dim = rng.choice(dims)
    return dim, rng.randint(1, x.size(dim)), rng.randint(1, 2)


def part(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    dims = [dim for dim in range(x.dim()) if x.size(dim) > 1]
    if not dims:
        return None
    return rng.randint(1, 2), rng.choice(dims), rng.randrange(2)


def split(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    dims = [dim for dim in range(x.dim()) if 1 < x.size(dim) < 5]
    return (rng.randint(1, 2), rng.choice(dims)) if dims else None


def unbind(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    dims = [dim for dim in range(x.dim()) if 1 <= x.size(dim) < 5]
    return (rng.choice(dims),) if dims else None


def number(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (rng.choice([0.5, -1.5, 2, 3.0, 0.25, -1]),)


def operand(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (scope.operand(broadcastable(rng, x), x.dtype),)


def two_operands(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return tuple(scope.operand(broadcastable(rng, x), x.dtype) for _ in range(2))


def broadcastable(rng: Random, x: Tensor) -> tuple[int, ...]:
    kind = rng.random()
    if kind < 0.6:
        return tuple(x.shape)
    return tuple(x.shape[1:]) if kind < 0.8 else ()


def index_and_number(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    where = index(rng, x, scope)
    return None if where is None else (*where, *(number(rng, x, scope) or ()))


def index_and_operand(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    where = index(rng, x, scope)
    if where is None:
        return None
    written: Tensor = eval(f"x[{render_index(where[0])}]", {"x": x})
    return *where, scope.operand(broadcastable(rng, written), x.dtype)


def rows(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if not x.dim() or not x.size(0):
        return None
    return (tuple(rng.randrange(x.size(0)) for _ in range(rng.randint(1, 3))),)


def rows_and_operand(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    chosen = rows(rng, x, scope)
    return None if chosen is None else (*chosen, scope.operand(tuple(x.shape[1:]), x.dtype))


def scalar_operand(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return (scope.operand((), x.dtype),)


def weight(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if not x.dim() or not x.size(-1):
        return None
    return (scope.operand((rng.randint(1, 4), x.size(-1)), x.dtype),)


def weight_and_bias(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if not x.dim() or not x.size(-1):
        return None
    out = rng.randint(1, 4)
    return scope.operand((out, x.size(-1)), x.dtype), scope.operand((out,), x.dtype)


def filters(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    if x.dim() not in (2, 3) or not x.numel():
        return None
    return scope.operand((2, x.size(-2), 1), x.dtype), scope.operand((2,), x.dtype)


def last_size(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return ((x.size(-1),),) if x.dim() and x.numel() else None


def complex_only(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return () if x.is_complex() else None


def pairs_only(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return () if x.dim() and x.size(-1) == 2 and not x.is_complex() else None


def three_dims_only(rng: Random, x: Tensor, scope: Operands) -> Drawn:
    return () if x.dim() == 3 and x.size(-1) > 1 else None
