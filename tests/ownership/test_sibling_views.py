"""Reading slices of one base: T of them cost what T slices cost, bit for bit."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor

import noalias
from noalias import graph, native
from noalias.bench.bits import same
from noalias.bench.counts import count
from tests.ownership.like_stock import grads, moved

STEPS = 6


def _added(program: Callable[[], list[Tensor | None]]) -> int:
    return moved(program, "sibling_views")["parts_added"]


def _leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _read(source: Tensor) -> Tensor:
    state = source.new_zeros(source.shape[1:])
    for t in range(len(source)):
        state = torch.tanh(state + source[t])
    return state


READS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "x[t]": lambda x, t: x[t],
    "x[-t]": lambda x, t: x[-1 - t],
    "x[t:t+1]": lambda x, t: x[t : t + 1],
    "overlapping": lambda x, t: x[max(t - 1, 0) : t + 2],
    "x[a:b:2]": lambda x, t: x[t % 2 :: 2],
    "x[..., k]": lambda x, t: x[..., t],
    "x[:, k]": lambda x, t: x[:, t],
    "select": lambda x, t: x.select(1, t),
    "narrow": lambda x, t: x.narrow(-1, t, 1),
    "negative narrow": lambda x, t: x.narrow(-2, -1 - t, 1),
    "the same": lambda x, t: x[2],
    "all": lambda x, t: x[0:],
    "nothing": lambda x, t: x[t:t],
    "diagonal": lambda x, t: x.diagonal(t - 3, 0, 2),
    "two dimensions": lambda x, t: x[t, :, 1:3],
    "one element": lambda x, t: x[t, 0, t],
    "beyond the end": lambda x, t: x[t : t + 99],
    "from the end": lambda x, t: x[-t - 1 :],
    "unbound": lambda x, t: x.unbind(1)[t],
    "indexed": lambda x, t: x[torch.tensor([t, 0])],
}

HOW_MANY = {"unbound": 0, "indexed": 0, "two dimensions": STEPS - 1, "one element": STEPS - 1}


def _all_read(how: str, dtype: torch.dtype) -> int:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, STEPS, STEPS, dtype=dtype)
        base = x * 1
        total = torch.zeros((), dtype=dtype)
        for t in range(STEPS):
            part = READS[how](base, t)
            total = total + (part * torch.randn(part.shape, dtype=dtype)).sum()
        total.abs().backward()
        return grads(x)

    return _added(program)


@pytest.mark.parametrize("how", READS)
def test_any_read(how: str) -> None:
    assert _all_read(how, torch.float32) == HOW_MANY.get(how, STEPS - 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize("how", ["x[t]", "overlapping", "x[a:b:2]", "diagonal"])
def test_any_dtype(how: str, dtype: torch.dtype) -> None:
    assert _all_read(how, dtype) == STEPS - 1


def test_the_graph_is_stocks() -> None:
    stock = graph.names(_read(_leaf(STEPS, 3)))
    with noalias.enabled("sibling_views"):
        assert graph.names(_read(_leaf(STEPS, 3))) == stock


def test_switched_off_stock_is_back() -> None:
    with noalias.enabled("sibling_views"):
        pass
    before = native.load().counters()["parts_added"]
    _read(_leaf(STEPS, 3)).sum().backward()
    assert native.load().counters()["parts_added"] == before


def test_a_graph_outlives_the_cure() -> None:
    x, y = _leaf(STEPS, 3), _leaf(STEPS, 3)
    with torch.no_grad():
        y.copy_(x)
    with noalias.enabled("sibling_views"):
        loss = _read(x).sum()
    loss.backward()
    _read(y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert same(x.grad, y.grad)


def test_a_leaf_is_read() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        _read(x).square().sum().backward()
        return grads(x)

    assert _added(program) == STEPS - 1


def test_large_slices_go_through_aten() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(3, 70000)
        (x[0] * x[1] + x[2].square()).sum().backward()
        return grads(x)

    assert _added(program) == 2


def test_other_readers_of_the_base_come_in_between() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        state = base.sum(0)
        for t in range(STEPS):
            state = torch.sin(state * base[t])
            if t % 2:
                state = state + base.mul(torch.randn(STEPS, 3)).sum(0)
        state.sum().backward()
        return grads(x)

    # A contribution of all ones is one number in memory; what it is added to first is new.
    assert _added(program) >= STEPS - 2


@pytest.mark.parametrize("view", ["x[t]", "x[:, k]", "overlapping", "the same", "diagonal"])
@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("order", ["", "o", "oo"])
def test_zeros_have_stocks_signs(view: str, parts: int, order: str) -> None:
    def program() -> list[Tensor | None]:
        base = _leaf(4, 4, 4) * 1
        pattern = torch.tensor([-0.0, 0.0, 1.0, -1.0])
        loss = torch.zeros(())
        for t in range(parts):
            part = READS[view](base, t)
            loss = loss + (part * pattern.roll(t)[: part.shape[-1]]).sum()
        # Later operators are the first to run in backward.
        for n in range(len(order)):
            loss = loss + (base * torch.tensor([-0.0, -0.0, 0.0, float(n)])).sum()
        return list(torch.autograd.grad(loss, base))

    assert _added(program) == parts - (not order)


def test_zeros_have_stocks_signs_behind_written_slices() -> None:
    def program() -> list[Tensor | None]:
        start = _leaf(2, 4)
        out = torch.zeros(STEPS, 2, 4) + start * 1
        for t in range(1, STEPS):
            out[t] = out[t - 1] * -0.0
            out[t].mul_(torch.tensor([-0.0, 0.0, 1.0, -1.0]))
            out[t, 0] += out[t - 1, 1] * 0.0
        (out * -0.0).sum().backward()
        return grads(start)

    counts = moved(program, "slice_update", "sibling_views")
    assert counts["parts_added"] >= STEPS
    assert counts["slices_updated"] >= STEPS


def test_a_program_of_random_reads_and_writes() -> None:
    def program(seed: int) -> Callable[[], list[Tensor | None]]:
        def run() -> list[Tensor | None]:
            make = torch.Generator().manual_seed(seed)

            def number(limit: int) -> int:
                return int(torch.randint(limit, (), generator=make))

            x = _leaf(5, 4)
            bases = [x * 1, torch.zeros(5, 4), x.t().contiguous().t()]
            found = []
            for _ in range(24):
                base = bases[number(3)]
                row, column = number(5), number(4)
                views = [base[row], base[row:, column], base[:, column], base.diagonal(number(2))]
                view = views[number(4)]
                sign = (-0.0, 0.0, 1.0, -1.0)[number(4)]
                match number(4):
                    case 0:
                        found.append((view * sign).sum())
                    case 1:
                        view.copy_(found[-1] * sign if found else torch.tensor(sign))
                    case 2:
                        view.mul_(sign)
                    case _:
                        found.append((base * sign).sum())
            torch.stack(found).sum().backward()
            return grads(x)

        return run

    total = {"parts_added": 0, "slices_updated": 0}
    for seed in range(60):
        counts = moved(program(seed), "slice_update", "sibling_views")
        for name in total:
            total[name] += counts[name]
    assert min(total.values()) > 60


def test_only_some_parts_are_wanted() -> None:
    def program() -> list[Tensor | None]:
        x, y = _leaf(STEPS, 3), _leaf(3)
        base = x * 2
        parts = [base[t] for t in range(STEPS)]
        loss = torch.stack([(part * y).sin() for part in parts]).sum()
        found: list[Tensor | None] = []
        for wanted in ((x,), (y,), (base,), (parts[1],), (parts[2], x), (base, parts[3], y)):
            found += torch.autograd.grad(loss, wanted, retain_graph=True)
        (parts[4] * 3).sum().backward(retain_graph=True)
        loss.backward(inputs=[y])
        return [*found, *grads(x, y)]

    assert _added(program) > 3 * (STEPS - 1)


def test_second_derivatives() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3, dtype=torch.float64)
        (first,) = torch.autograd.grad(_read(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return [first.detach(), second]

    _added(program)


def test_gradcheck() -> None:
    x = _leaf(3, 2, dtype=torch.float64)
    with noalias.enabled("sibling_views"):
        assert torch.autograd.gradcheck(_read, (x,))
        assert torch.autograd.gradgradcheck(_read, (x,))


def test_several_backward_calls_over_one_graph() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        state = _read(x * 1)
        state.sum().backward(retain_graph=True)
        state.square().sum().backward(retain_graph=True)
        state[0].backward()
        return grads(x)

    assert _added(program) == 3 * (STEPS - 1)


def test_truncated_backpropagation() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(3 * STEPS, 3)
        state = torch.zeros(3)
        for t in range(3 * STEPS):
            state = torch.tanh(state + x[t])
            if t % STEPS == STEPS - 1:
                state.sum().backward()
                state = state.detach()
        return grads(x)

    assert _added(program) == 3 * (STEPS - 1)


def test_the_base_is_written_between_reads() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        early = base[1]
        state = early.clone()
        for t in range(STEPS):
            state = torch.sin(state + base[t].clone())
            base[t] = state
            state = state + base[t] + base[0]
            if t == 2:
                base.mul_(2)
        (state + early).sum().backward()
        return grads(x)

    assert _added(program) > STEPS
    moved(program, "slice_update", "sibling_views")


def test_the_base_is_gone_before_backward() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 3
        siblings = [base[t].sin() for t in range(STEPS)]
        del base
        gc.collect()
        sum(siblings[1:], siblings[0]).sum().backward()
        return grads(x)

    assert _added(program) == STEPS - 1


def test_reads_without_grad_mode_have_no_history() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        with torch.no_grad():
            constant = sum(x[t] for t in range(STEPS))
        assert isinstance(constant, Tensor)
        (x[0] * constant + x[1]).sum().backward()
        return grads(x)

    assert _added(program) == 1


def test_hooks_see_what_stock_shows() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        seen: list[Tensor | None] = []
        base.register_hook(lambda gradient: seen.append(gradient.clone()))
        base.retain_grad()
        total = torch.zeros(3)
        for t in range(STEPS):
            part = base[t]
            if t == 2:
                part.register_hook(lambda gradient: gradient * 2)
            if t == 3:
                part.retain_grad()
                seen.append(part)
            if t == 4:
                assert part.grad_fn is not None
                part.grad_fn.register_hook(
                    lambda results, gradients: seen.append(results[0].clone())
                )
            total = total + part.sin()
        total.sum().backward()
        kept = seen.pop(0)
        assert kept is not None
        return [kept.grad, *seen, base.grad, *grads(x)]

    # Three parts have hooks and go the way of stock; one of the others starts the sum or not.
    assert STEPS - 4 <= _added(program) <= STEPS - 3


def test_a_hook_may_call_the_backward_operator_itself() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        called: list[Tensor | None] = []

        def call(gradient: Tensor) -> None:
            called.append(torch.ops.aten.select_backward(gradient, [STEPS, 3], 0, 1))

        total = torch.zeros(3)
        for t in range(STEPS):
            part = base[t]
            part.register_hook(call)
            total = total + part
        total.sum().backward()
        return [*called, *grads(x)]

    assert _added(program) == 0


def test_the_operator_alone_is_stocks() -> None:
    def program() -> list[Tensor | None]:
        part = torch.randn(3)
        return [
            torch.ops.aten.select_backward(part, [4, 3], 0, 1),
            torch.ops.aten.slice_backward(part, [7], 0, 1, 7, 2),
            torch.ops.aten.diagonal_backward(part, [3, 4], 1, 0, 1),
        ]

    assert _added(program) == 0


def test_the_operator_inside_a_custom_function_is_stocks() -> None:
    class Row(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x[1].clone()

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return torch.ops.aten.select_backward(gradients[0], [STEPS, 3], 0, 1)

    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        total = base[0]
        for _ in range(3):
            total = total + Row.apply(base)
        total.sum().backward()
        return grads(x)

    assert _added(program) == 0


def test_a_gradient_that_somebody_holds_is_left_alone() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        given = torch.randn(STEPS, 3)
        keep = given.clone()
        parts = base[1] + base[2]
        torch.autograd.backward([base, parts], [given, torch.ones(3)])
        assert torch.equal(given, keep)
        return [given, *grads(x)]

    assert _added(program) == 2


def test_a_gradient_from_a_python_function_is_added_to() -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return gradients[0] * 2

    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        state = torch.zeros(3)
        for t in range(STEPS):
            state = torch.sin(state + base[t])
        (state.sum() + (Twice.apply(base) * torch.randn(STEPS, 3)).sum()).backward()
        return grads(x)

    assert _added(program) == STEPS


def test_backward_inside_backward() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        total = torch.zeros(3)
        for t in range(STEPS):
            total = total + torch.utils.checkpoint.checkpoint(
                lambda part: torch.sin(part[0] * part[1]), base[t], use_reentrant=t % 2 == 0
            )
        total.sum().backward()
        return grads(x)

    assert _added(program) >= STEPS - 1


def test_backward_goes_on_after_an_error() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(STEPS, 3)
        base = x * 1
        parts = [base[t].sin() for t in range(STEPS)]
        failing = [True]

        def fail(gradient: Tensor) -> None:
            if failing[0]:
                raise ArithmeticError

        parts[1].register_hook(fail)
        loss = torch.stack(parts).prod(0).sum()
        with pytest.raises(ArithmeticError):
            loss.backward(retain_graph=True)
        failing[0] = False
        loss.backward()
        return grads(x)

    assert _added(program) >= STEPS - 1


def test_anomaly_mode_runs_stock() -> None:
    def program() -> list[Tensor | None]:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            x = _leaf(STEPS, 3)
            _read(x).sum().backward()
        return grads(x)

    assert _added(program) == 0


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_function_transforms_and_batched_gradients() -> None:
    def program() -> list[Tensor | None]:
        x = torch.randn(STEPS, 3)
        gradient = torch.func.grad(lambda value: _read(value).square().sum())
        leaf = _leaf(STEPS, 3)
        batched = torch.autograd.grad(_read(leaf), leaf, torch.eye(3), is_grads_batched=True)
        return [
            gradient(x),
            torch.func.jacrev(_read)(x),
            torch.func.vmap(gradient)(torch.stack([x, x + 1])),
            *torch.func.jvp(_read, (x,), (torch.ones_like(x),)),
            *batched,
        ]

    assert _added(program) == 0


def test_compiled_programs_see_stock() -> None:
    def program() -> list[Tensor | None]:
        torch.compiler.reset()
        x = _leaf(STEPS, 3)
        torch.compile(_read, backend="aot_eager")(x).sum().backward()
        return grads(x)

    assert _added(program) == 0


def test_subclasses_see_stock() -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    def program() -> list[Tensor | None]:
        x = TwoTensor(torch.randn(STEPS, 3), torch.randn(STEPS, 3)).requires_grad_()
        total = x[0] * 1
        for t in range(1, STEPS):
            total = total + x[t]
        total.sum().backward()
        assert isinstance(x.grad, TwoTensor)
        return [x.grad.a, x.grad.b]

    assert _added(program) == 0


def test_threads_share_a_graph() -> None:
    x = _leaf(STEPS, 3)
    with noalias.enabled("sibling_views"):
        state = _read(x * 1)
        found: list[Tensor] = []

        def work() -> None:
            for _ in range(20):
                found.extend(torch.autograd.grad(state.sum(), x, retain_graph=True))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 80
    assert all(same(gradient, found[0]) for gradient in found)


def _tensors() -> int:
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def test_many_short_lived_families_leave_nothing_behind() -> None:
    def families(number: int) -> None:
        for _ in range(number):
            x = _leaf(3, 2)
            base = x * 1
            (base[0] * base[1] + base[2]).sum().backward()

    before = native.load().counters()["parts_added"]
    with noalias.enabled("sibling_views"):
        families(50)
        gc.collect()
        tensors = _tensors()
        families(2000)
        gc.collect()
        assert _tensors() <= tensors
    assert native.load().counters()["parts_added"] - before == 2 * 2050


def _counts(steps: int) -> tuple[int, int]:
    def prepare() -> Callable[[], None]:
        x = _leaf(steps, 16)
        return _read(x).sum().backward

    counts = count(prepare)
    return counts.allocated_bytes, counts.peak_bytes


def test_bytes_grow_linearly_with_the_number_of_reads() -> None:
    assert _counts(128)[0] > 3 * _counts(64)[0]
    with noalias.enabled("sibling_views"):
        assert _counts(128)[0] < 2.2 * _counts(64)[0]


def test_the_peak_is_no_higher_than_stocks() -> None:
    _, stock = _counts(64)
    with noalias.enabled("sibling_views"):
        _, cured = _counts(64)
    assert cured <= stock
    assert math.isfinite(cured)
