"""Programs over several streams that wait wherever they must, made from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import cast

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, FunctionCtx

from tests import pretend_device
from tests.ownership.like_stock import grads
from tests.pretend_device import on_stream

Step = Callable[[Tensor, Tensor], Tensor]

SHAPE = (4, 3)
STREAMS = 3


def leaf(device: str, *shape: int) -> Tensor:
    return torch.randn(shape).to(device).requires_grad_()


class _Recomputed(torch.autograd.Function):
    """A block that is computed again in backward, as a reentrant checkpoint does."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, stream: int | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.stream = stream  # type: ignore[attr-defined]
        return block(x)

    @staticmethod
    def backward(ctx: BackwardCFunction, *gradients: Tensor) -> tuple[Tensor | None, None]:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        stream = ctx.stream  # type: ignore[attr-defined]
        if stream is None:
            stream = pretend_device.load().current_stream()
        with torch.enable_grad(), on_stream(stream):
            block(x).backward(gradients[0])
        return x.grad, None


def block(x: Tensor) -> Tensor:
    return -(x * 0.5) / 3


def recomputed(x: Tensor, stream: int | None = None) -> Tensor:
    """``block``, whose backward runs another backward, on the stream given or on its own one."""
    return cast("Tensor", _Recomputed.apply(x, stream))  # type: ignore[no-untyped-call]


def fork(gradient: Tensor) -> None:
    """A hook that has a gradient read on a side stream, for which nobody waits."""
    device = pretend_device.load()
    here = device.current_stream()
    side = here + STREAMS
    device.wait(side, here)
    device.set_stream(side)
    gradient.sum()
    device.set_stream(here)


def watch(x: Tensor) -> Tensor:
    x.register_hook(fork)
    return x


def watch_before_a_view(x: Tensor) -> Tensor:
    """The hook gets a view, and nobody in Python ever sees its base."""
    x.register_hook(fork)
    return x.view(-1).view_as(x)


def watch_between_two_views(x: Tensor) -> Tensor:
    """The hook gets a view; what goes on from there is another one, of the same memory."""
    between = x.view(-1)
    between.register_hook(fork)
    return between.view_as(x)


def watch_behind_a_view(x: Tensor) -> Tensor:
    """The hook gets what its view is made of later."""
    behind = x.view(-1)
    behind.register_hook(fork)
    return behind.mul(2).view_as(x)


def watch_before_a_node(x: Tensor) -> Tensor:
    assert x.grad_fn is not None
    x.grad_fn.register_prehook(lambda gradients: fork(gradients[0]))
    return x


def watch_before_the_node_of_a_view(x: Tensor) -> Tensor:
    return watch_before_a_node(x.view(-1)).view_as(x)


def watch_all_at_once(x: Tensor) -> Tensor:
    def forked(gradients: Sequence[Tensor | None]) -> None:
        assert gradients[0] is not None
        fork(gradients[0])

    view = x.view(-1)
    torch.autograd.graph.register_multi_grad_hook([view], forked)
    return view.view_as(x)


WATCHES: Sequence[Callable[[Tensor], Tensor]] = (
    watch,
    watch_before_a_view,
    watch_between_two_views,
    watch_behind_a_view,
    watch_before_a_node,
    watch_before_the_node_of_a_view,
    watch_all_at_once,
)


class RandomProgram:
    """A few operators on one to three streams, backward, and every gradient there is.

    Each stream waits for what it reads, and only reading hooks fork. PyTorch alone has a race here
    only where it writes a gradient itself that such a hook may still read.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, device: str) -> Sequence[Tensor | None]:
        random = self._random = Random(self._seed)
        self._streams = random.sample(range(STREAMS), random.choice([1, 1, 2, 3]))
        self._seen: list[Tensor | None] = []
        home = self._streams[0]
        with on_stream(home):
            leaves = [leaf(device, *SHAPE) for _ in range(2)]
            scale = leaf(device, *SHAPE[1:])
            pool = list(leaves)
            for _ in range(random.randrange(4, 14)):
                with self._some_stream():
                    x, other = random.choice(pool[-3:]), random.choice(pool)
                    pool.append(random.choice(self._steps(scale))(x, other))
            with self._some_stream():
                loss = pool[-1].square().sum() + (random.choice(pool) * scale).sum()
            with on_stream(random.choice([home, home, random.randrange(STREAMS)])):
                self._backward(loss, [*leaves, scale])
        return [*grads(*leaves, scale), *self._seen]

    def _some_stream(self) -> AbstractContextManager[None]:
        return on_stream(self._random.choice(self._streams))

    def _backward(self, loss: Tensor, leaves: Sequence[Tensor]) -> None:
        way = self._random.randrange(4)
        if way == 0:
            self._seen += torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
        if way == 1:
            loss.backward(retain_graph=True)
        loss.backward()

    def _steps(self, scale: Tensor) -> Sequence[Step]:
        number = self._random.choice([0.5, 3.0])
        return [
            lambda x, other: x * other,
            lambda x, other: x - other,
            lambda x, other: x + other,
            lambda x, _: x * scale,
            lambda x, _: x * number,
            lambda x, _: x / number,
            lambda x, _: -x,
            lambda x, _: x.sin(),
            lambda x, _: x.reshape(-1).mul(number).reshape(SHAPE),
            lambda x, _: x.t().mul(number).t(),
            lambda x, other: torch.cat([x, other])[2:6],
            lambda x, _: sum((x[t].sin() for t in range(SHAPE[0])), x),
            self._recomputed,
            self._filled,
            self._filled,
            self._watched,
            self._watched,
        ]

    def _recomputed(self, x: Tensor, _: Tensor) -> Tensor:
        return block(recomputed(x, self._random.choice([None, *self._streams])))

    def _filled(self, x: Tensor, other: Tensor) -> Tensor:
        filled = x * 1
        for t in range(SHAPE[0]):
            with self._some_stream():
                if self._random.random() < 0.7:
                    filled[t] = other[t] * 0.5
                else:
                    filled[t].mul_(0.5)
        return filled

    def _watched(self, x: Tensor, _: Tensor) -> Tensor:
        y = x * 1.5
        side = self._random.choice(self._streams)

        def joined(gradient: Tensor) -> None:
            with on_stream(side):
                self._seen.append(gradient * 2)

        if self._random.random() < 0.5:
            return self._random.choice(WATCHES)(y)
        y.register_hook(self._random.choice([joined, self._seen.append]))
        return y
