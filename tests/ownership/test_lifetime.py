"""Nothing outlives its time: nodes, tables, hooks, kernels; whatever ends a step, and where."""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

import noalias
from tests.ownership import training
from tests.ownership.training import counts, forward, gradients, parameters, run

CURES = ("hidden_base", "linear", "slice_update", "sibling_views", "owned_gradient")


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    noalias.disable()


def assert_stock(got: list[Tensor], expected: list[Tensor]) -> None:
    assert len(got) == len(expected)
    assert all(map(torch.equal, got, expected))


# The bytes that malloc has handed out, and the blocks of Python's own allocator: exact where the
# size of the process is not.
MEASURED = """
    import ctypes, gc, sys

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost")]

    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Info

    def measured():
        gc.collect()
        info = mallinfo()
        return info.uordblks + info.hblkhd, sys.getallocatedblocks()

    weight, bias = training.parameters()

    def steps(count):
        for _ in range(count):
            training.step(weight, bias)
            if noalias.status().active:
                training.write_parts(weight)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or "NOALIAS_SANITIZE" in os.environ,
    reason="asks glibc what it has handed out; a sanitizer's allocator keeps what is freed",
)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(5_000, id="5000"),
        pytest.param(100_000, id="100000", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_memory_is_flat_over_steps(count: int) -> None:
    done = run(
        MEASURED
        + f"""
    noalias.enable()
    steps(500)
    for _ in range(3):
        before = measured()
        steps({count})
        after = measured()
        print(after[0] - before[0], after[1] - before[1])
    """,
        timeout=3500,
    )
    assert done.returncode == 0, done.stderr
    # What a step leaves behind is there each time; tables that grow once, and what threads of the
    # allocator happen to hold, are not.
    times = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    grown, blocks = (min(each) for each in zip(*times, strict=True))
    # One object of 16 bytes, or one Python object, left behind by every step would be more.
    assert grown < 8 * count, f"{grown} bytes more after {count} steps"
    assert blocks < count // 10, f"{blocks} blocks more after {count} steps"


@pytest.mark.skipif(
    sys.platform != "linux" or "NOALIAS_SANITIZE" in os.environ,
    reason="asks glibc what it has handed out; a sanitizer's allocator keeps what is freed",
)
def test_a_leak_of_one_small_object_a_step_would_be_seen() -> None:
    done = run(
        MEASURED
        + """
    malloc = ctypes.CDLL(None).malloc
    steps(500)
    before = measured()
    for _ in range(1000):
        steps(1)
        malloc(ctypes.c_size_t(16))
    print(measured()[0] - before[0])
    """
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 8 * 1000


def test_every_tensor_has_stocks_owners_after_each_step() -> None:
    def owners(steps: int) -> list[dict[str, tuple[int, int, int]]]:
        weight, bias = parameters()
        seen = []
        for _ in range(steps):
            named: dict[str, Tensor] = {}
            forward(weight, bias, named).backward()
            named |= {"weight": weight, "bias": bias}
            assert weight.grad is not None
            assert bias.grad is not None
            named |= {"weight.grad": weight.grad, "bias.grad": bias.grad}
            seen.append({name: counts(tensor) for name, tensor in named.items()})
            weight.grad = bias.grad = None
        return seen

    expected = owners(3)
    for cure in CURES:
        with noalias.enabled(cure):
            got = owners(3)
        for stock, cured in zip(expected, got, strict=True):
            for name, (references, tensors, storages) in cured.items():
                assert references == stock[name][0], (cure, name)
                # A base that is dropped, or a view that is never made, owns nothing.
                assert tensors <= stock[name][1], (cure, name)
                assert storages <= stock[name][2], (cure, name)


def test_no_tensor_outlives_its_step() -> None:
    gradients()
    before = training.live()
    with noalias.enabled():
        for _ in range(3):
            gradients()
        assert training.live() == before
    assert training.live() == before


class Mark:
    """Lives as long as the node in whose metadata it is put."""


def test_a_graph_that_is_never_run_backward_is_freed_with_its_result() -> None:
    with noalias.enabled():
        loss = forward(*parameters())
        marks = []
        for node in noalias.graph.nodes(loss):
            node.metadata["mark"] = mark = Mark()
            marks.append(weakref.ref(mark))
        del loss, node, mark
        gc.collect()
    assert len(marks) > 40
    assert not any(mark() for mark in marks)


@pytest.mark.parametrize("cure", [*CURES, "all"])
def test_disable_between_forward_and_backward_gives_stocks_gradients(cure: str) -> None:
    names = () if cure == "all" else (cure,)
    expected = gradients()
    leaves = parameters()
    noalias.enable(*names)
    loss = forward(*leaves)
    noalias.disable()
    loss.backward()
    assert_stock([leaf.grad for leaf in leaves if leaf.grad is not None], expected)


@pytest.mark.parametrize("cure", [*CURES, "all"])
def test_enable_between_forward_and_backward_gives_stocks_gradients(cure: str) -> None:
    names = () if cure == "all" else (cure,)
    expected = gradients()
    leaves = parameters()
    loss = forward(*leaves)
    with noalias.enabled(*names):
        loss.backward()
    assert_stock([leaf.grad for leaf in leaves if leaf.grad is not None], expected)


@pytest.mark.parametrize("where", ["linear", "view", "buffer", "total", "loss"])
def test_switching_in_a_hook_of_the_running_backward_gives_stocks_gradients(where: str) -> None:
    def backward(switch: bool) -> list[Tensor]:
        leaves = parameters()
        named: dict[str, Tensor] = {}
        loss = forward(*leaves, named)

        def toggle(gradient: Tensor) -> None:
            if switch:
                noalias.disable()
                noalias.enable("sibling_views")
                noalias.enable("owned_gradient")

        named[where].register_hook(toggle)
        loss.backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    expected = backward(False)
    noalias.enable()
    got = backward(True)
    assert_stock(got, expected)


class Thrown(Exception):
    """What the tests' own hooks and functions raise."""


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        raise Thrown


def assert_frees_its_step_and_spares_the_next(fail: Callable[[], None]) -> None:
    expected = gradients()
    with noalias.enabled():
        fail()
        before = training.live()
        for _ in range(3):
            fail()
        assert training.live() == before
        assert_stock(gradients(), expected)


@pytest.mark.parametrize("where", ["linear", "view", "part", "buffer", "total"])
def test_an_exception_in_a_hook_frees_the_step_and_spares_the_next(where: str) -> None:
    def fail() -> None:
        named: dict[str, Tensor] = {}
        loss = forward(*parameters(), named)

        def hook(gradient: Tensor) -> None:
            raise Thrown

        named[where].register_hook(hook)
        with pytest.raises(Thrown):
            loss.backward()

    assert_frees_its_step_and_spares_the_next(fail)


def test_an_exception_in_backward_frees_the_step_and_spares_the_next() -> None:
    def fail() -> None:
        weight, bias = parameters()
        loss = forward(Raises.apply(weight), bias)
        with pytest.raises(Thrown):
            loss.backward()

    assert_frees_its_step_and_spares_the_next(fail)


def test_a_backward_that_failed_can_be_run_again_with_stocks_gradients() -> None:
    def twice() -> list[Tensor]:
        leaves = parameters()
        named: dict[str, Tensor] = {}
        loss = forward(*leaves, named)
        calls = []

        def hook(gradient: Tensor) -> None:
            calls.append(gradient)
            if len(calls) == 1:
                raise Thrown

        named["buffer"].register_hook(hook)
        with pytest.raises(Thrown):
            loss.backward(retain_graph=True)
        loss.backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None] + calls

    expected = twice()
    with noalias.enabled():
        assert_stock(twice(), expected)


def test_the_interpreter_ends_with_live_graphs_hooks_and_an_audit() -> None:
    done = run("""
        noalias.enable()
        named = {}
        kept = training.forward(*training.parameters(), named)
        for tensor in named.values():
            tensor.register_hook(lambda gradient: gradient * 2)
        cycle = [kept]
        cycle.append(cycle)
        run_before = training.forward(*training.parameters())
        run_before.backward(retain_graph=True)
        listening = noalias.audit()
        listening.__enter__()
        audited = training.forward(*training.parameters())
        print("ends")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ends\n", "")


def test_reload_keeps_what_is_on_and_what_was_recorded() -> None:
    done = run("""
        import importlib, sys
        expected = training.gradients()
        noalias.enable()
        leaves = training.parameters()
        loss = training.forward(*leaves)
        for name in sorted(name for name in sys.modules if name.split(".")[0] == "noalias"):
            if name.startswith(("noalias.ownership", "noalias.native")):
                importlib.reload(sys.modules[name])
        importlib.reload(noalias)
        loss.backward()
        print(len(noalias.status().active))
        assert all(torch.equal(leaf.grad, e) for leaf, e in zip(leaves, expected))
        assert all(map(torch.equal, training.gradients(), expected))
        noalias.disable()
        print(len(noalias.status().active))
        assert all(map(torch.equal, training.gradients(), expected))
    """)
    assert (done.returncode, done.stdout) == (0, "5\n0\n"), done.stderr


def test_an_interrupt_in_backward_is_raised_and_spares_the_next_step() -> None:
    done = run("""
        expected = training.gradients()
        noalias.enable()
        for where in ("linear", "view", "part", "buffer", "total", "loss"):
            named = {}
            loss = training.forward(*training.parameters(), named)
            named[where].register_hook(lambda gradient: signal.raise_signal(signal.SIGINT))
            try:
                loss.backward()
            except KeyboardInterrupt:
                print(where, end=" ")
            del named, loss
            assert all(map(torch.equal, training.gradients(), expected))
    """)
    assert (done.returncode, done.stdout) == (0, "linear view part buffer total loss "), done.stderr


def test_interrupts_at_any_moment_spare_the_steps_after() -> None:
    done = run("""
        import random, time
        expected = training.gradients()
        noalias.enable()
        # A KeyboardInterrupt, sent by a clock instead of a key.
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        draw, interrupted = random.Random(0), 0
        weight, bias = training.parameters()
        for _ in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-5, 5e-3))
                while True:
                    loss = training.forward(weight, bias)
                    loss.backward()
            except KeyboardInterrupt:
                interrupted += 1
            weight.grad = bias.grad = None
            assert all(map(torch.equal, training.gradients(), expected))
        print(interrupted)
    """)
    assert (done.returncode, done.stdout) == (0, "200\n"), done.stderr
