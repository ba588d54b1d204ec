"""In-place writes to slices of a visible base: T of them cost what T slices cost, bit for bit."""

from __future__ import annotations

import threading
import traceback
import warnings
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor

import noalias
from noalias import graph
from noalias.bench.counts import count
from tests.ownership import training
from tests.ownership.like_stock import grads, moved

STEPS = 5


def _updates(program: Callable[[], list[Tensor | None]]) -> int:
    return moved(program, "slice_update")["slices_updated"]


def _leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _filled(state: Tensor) -> Tensor:
    out = state.new_zeros(STEPS, *state.shape)
    for t in range(STEPS):
        state = state * 0.5
        out[t] = state
    return out


def test_the_node_takes_the_place_of_copy_slices() -> None:
    with noalias.enabled("slice_update"):
        out = _filled(_leaf(3))
    names = graph.names(out)
    assert names["SliceUpdate"] == STEPS
    assert not graph.has_copy_slices(out)
    stock = graph.names(_filled(_leaf(3)))
    assert stock["CopySlices"] == STEPS
    assert names - graph.Counter(SliceUpdate=STEPS) == stock - graph.Counter(CopySlices=STEPS)


def test_the_views_own_history_leads_through_the_node() -> None:
    with noalias.enabled("slice_update"):
        out = torch.zeros(4, 3)
        row = out[1]
        row.copy_(_leaf(3))
        assert row.grad_fn is not None
        assert row.grad_fn.next_functions[0][0] is out.grad_fn
        assert out.grad_fn is not None
        assert out.grad_fn.name() == "SliceUpdate"


def test_nodes_keep_the_order_of_their_calls() -> None:
    with noalias.enabled("slice_update"):
        out = _filled(_leaf(3))
    numbers = [node._sequence_nr() for node in graph.find(out, name="SliceUpdate")]
    assert numbers == sorted(numbers, reverse=True)
    assert len(set(numbers)) == STEPS


def test_the_engine_finds_the_way_through_the_source_alone() -> None:
    # The base has no history: only the source's edge leads on.
    with noalias.enabled("slice_update"):
        source = _leaf(3) * 2
        out = torch.ones(2, 3)
        out[0] = source
        (gradient,) = torch.autograd.grad(out.sum() + source.sum(), source)
    torch.testing.assert_close(gradient, torch.full((3,), 2.0), rtol=0, atol=0)


def test_switched_off_stock_is_back() -> None:
    with noalias.enabled("slice_update"):
        pass
    assert graph.names(_filled(_leaf(3)))["SliceUpdate"] == 0


def test_every_update_but_the_first_to_run_is_in_place_when_the_gradient_is_expanded() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        _filled(state).sum().backward()
        return grads(state)

    assert _updates(program) == STEPS - 1


def test_all_updates_are_in_place_when_the_gradient_is_dense() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        _filled(state).square().sum().backward()
        return grads(state)

    assert _updates(program) == STEPS


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda base: base[:],
    "select": lambda base: base[1],
    "negative select": lambda base: base.select(-1, -2),
    "slice": lambda base: base[1:3],
    "steps": lambda base: base[::2, 1::2],
    "narrow": lambda base: base.narrow(1, 1, 2),
    "transpose": lambda base: base.transpose(0, 1),
    "diagonal": lambda base: base.diagonal(1),
    "chain": lambda base: base.transpose(0, 2)[1:, 0].unsqueeze(0),
    "reshape": lambda base: base.view(-1)[3:17],
    "element": lambda base: base[1, 2, 0:1],
    "nothing": lambda base: base[2:2],
    "as_strided": lambda base: base.as_strided((2, 3), (5, 2), 4),
    "permuted": lambda base: base.permute(2, 0, 1)[:, 1],
    "unfolded": lambda base: base.unfold(0, 2, 2)[0],
}

WRITES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "copy_": lambda view, x: view.copy_(x.expand_as(view)),
    "copy_ of a number": lambda view, x: view.copy_(torch.tensor(2.0)),
    "add_": lambda view, x: view.add_(x),
    "mul_": lambda view, x: view.mul_(x),
    "sin_": lambda view, x: view.sin_(),
    "neg_": lambda view, x: view.neg_(),
    "zero_": lambda view, x: view.zero_(),
    "addcmul_": lambda view, x: view.addcmul_(x.expand_as(view), view.detach().clone(), value=-1),
    "masked_fill_": lambda view, x: view.masked_fill_(view.detach().real > 0, 0),
    "pow_": lambda view, x: view.pow_(3),
}


def _written_twice(view: str, write: str, dtype: torch.dtype) -> int:
    def program() -> list[Tensor | None]:
        x, start = _leaf(1, dtype=dtype), _leaf(4, 5, 3, dtype=dtype)
        base = start * 1
        weight = torch.randn(4, 5, 3, dtype=dtype)
        for _ in range(2):
            WRITES[write](VIEWS[view](base), x)
        (base * weight).sum().abs().backward()
        return [*grads(x, start), base.detach()]

    return _updates(program)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_any_view_and_any_operator(view: str, write: str) -> None:
    assert _written_twice(view, write, torch.float32) == (0 if view == "nothing" else 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.complex64])
@pytest.mark.parametrize("write", WRITES)
def test_any_dtype(write: str, dtype: torch.dtype) -> None:
    assert _written_twice("chain", write, dtype) == 2


BASES: dict[str, Callable[[Tensor], Tensor]] = {
    "zeros": torch.zeros_like,
    "clone of a leaf": lambda x: x.clone(),
    "product": lambda x: x * 2,
    "saved result": lambda x: x.exp(),
    "channels last": lambda x: (x * 1).to(memory_format=torch.channels_last),
    "transposed": lambda x: (x * 1).transpose(0, 1).contiguous().transpose(0, 1),
    "expanded": lambda x: (x * 1)[:1].expand(4, -1, -1, -1).clone(),
}


@pytest.mark.parametrize("base", BASES)
def test_any_base(base: str) -> None:
    def program() -> list[Tensor | None]:
        x, rows = _leaf(4, 3, 2, 2), _leaf(4, 3, 2, 2)
        out = BASES[base](x)
        for t in range(4):
            out[t] = rows[t] * 2
            out[:, 1].mul_(rows[t, 0])
        if base == "saved result":
            out = out.clone()  # stock refuses to go back through the overwritten result
            return [out.detach()]
        out.square().sum().backward()
        return grads(x, rows)

    _updates(program)


def test_an_overwritten_saved_result_still_raises() -> None:
    with noalias.enabled("slice_update"):
        out = _leaf(3, 2).exp()
        out[0] = 1.0
        out[1] *= 2
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_a_base_without_values_yet() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(6)
        h, out = state, torch.empty(STEPS, 6)
        for t in range(STEPS):
            h = h.sin()
            out[t] = h
        out.cos().sum().backward()
        return [out.detach(), *grads(state)]

    assert _updates(program) == STEPS


def test_several_bases_in_turn() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(4)
        h = state
        a, b = torch.zeros(STEPS, 4), torch.zeros(4, STEPS)
        for t in range(STEPS):
            h = torch.tanh(h + 0.1)
            a[t] = h
            b[:, t] = h * 2
            a[t] += b[:, t].detach()
        (a.square().sum() + b.sin().sum()).backward()
        return grads(state)

    # `a[t] += ...` writes twice: in place, and then the same slice to itself.
    assert _updates(program) == 4 * STEPS


def test_reads_between_writes() -> None:
    def program() -> list[Tensor | None]:
        start = _leaf(2, 8)
        out = torch.zeros(STEPS, 2, 8)
        out[0] = start
        for t in range(1, STEPS):
            out[t, :, 1:-1] = out[t - 1, :, 2:] - 2 * out[t - 1, :, 1:-1] + out[t - 1, :, :-2]
            out[t] *= 0.5
        out.square().mean().backward()
        return grads(start)

    # Some gradient of a read arrives first and is not the base's own.
    assert _updates(program) > STEPS
    moved(program, "slice_update", "sibling_views")


def test_second_derivatives() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3, dtype=torch.float64)
        (first,) = torch.autograd.grad(_filled(state.sin()).pow(3).sum(), state, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), state)
        return [first.detach(), second]

    # None while the first derivative is recorded.
    assert 0 < _updates(program) <= 2 * STEPS


def test_gradcheck() -> None:
    state = _leaf(3, dtype=torch.float64)
    with noalias.enabled("slice_update", "sibling_views"):
        assert torch.autograd.gradcheck(lambda x: _filled(x).square(), (state,))
        assert torch.autograd.gradgradcheck(lambda x: _filled(x).square(), (state,))


def test_several_backward_calls_over_one_graph() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        out = _filled(state)
        out.square().sum().backward(retain_graph=True)
        out[1:3].sin().sum().backward(retain_graph=True)
        out.sum().backward()
        return grads(state)

    assert _updates(program) > 2 * STEPS


def test_a_second_backward_call_without_a_graph_raises() -> None:
    with noalias.enabled("slice_update"):
        out = _filled(_leaf(3))
        out.backward(torch.ones_like(out))
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            out.backward(torch.ones_like(out))


def test_parts_of_a_graph() -> None:
    def program() -> list[Tensor | None]:
        x, y, start = _leaf(3), _leaf(3), _leaf(4, 3)
        base = start * 2
        base[1] = x * 3
        before = base[1:3]
        base[2].mul_(y)
        loss = base.square().sum()
        found: list[Tensor | None] = []
        for wanted in ((x,), (y,), (start,), (x, start), (y, before), (base,)):
            found += torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        loss.backward(inputs=[y])
        return [*found, *grads(x, y, start)]

    assert _updates(program) > 0


def test_a_gradient_that_the_caller_holds_is_left_alone() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        out = _filled(state)
        given = torch.ones_like(out)
        array = np.ones(tuple(out.shape), dtype=np.float32)
        out.backward(given, retain_graph=True)
        out.backward(torch.from_numpy(array))
        return [given, torch.from_numpy(array.copy()), *grads(state)]

    # The last to have run is the first update; its gradient came from the one before.
    assert _updates(program) == 2 * (STEPS - 1)


def test_a_gradient_in_memory_from_elsewhere_is_left_alone() -> None:
    memory = np.zeros((STEPS, 3), dtype=np.float32)

    class Borrowed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.sum()

        @staticmethod
        def backward(ctx: object, *gradients: Tensor) -> Tensor:
            return torch.from_numpy(memory)

    def program() -> list[Tensor | None]:
        memory[:] = 1
        state = _leaf(3)
        Borrowed.apply(_filled(state)).backward()
        return [torch.from_numpy(memory.copy()), *grads(state)]

    assert _updates(program) == STEPS - 1


def test_hooks_on_base_and_slices_see_what_stock_shows() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        seen: list[Tensor | None] = []
        base = torch.zeros(4, 3)
        base[0] = state * 2
        base.register_hook(lambda gradient: seen.append(gradient.clone()))
        row = base[1]
        row.copy_(state)
        row.register_hook(lambda gradient: seen.append(gradient.clone()))
        base.retain_grad()
        base[2].add_(row)
        base.register_hook(lambda gradient: gradient * 2)
        base.square().sum().backward()
        return [*seen, base.grad, *grads(state)]

    assert _updates(program) > 0


def test_hooks_that_keep_the_gradient_keep_its_values() -> None:
    def program() -> list[Tensor | None]:
        state, kept = _leaf(3), []
        base = torch.zeros(4, 3)
        for t in range(4):
            base[t] = state * t
            node = base.grad_fn
            assert node is not None
            node.register_prehook(lambda gradients: kept.append(gradients[0]))
            node.register_hook(lambda results, gradients: kept.append(gradients[0]))
        base.square().sum().backward()
        return [*kept, *grads(state)]

    assert _updates(program) == 0


def test_retain_grad_on_every_version_of_the_base() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        base = torch.zeros(4, 3)
        base[0] = state
        base.retain_grad()
        for t in range(1, 4):
            base[t] = state * t
        base.square().sum().backward()
        return [base.grad, *grads(state)]

    assert _updates(program) == 4


def test_under_checkpoint() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        for use_reentrant in (False, True):
            out = torch.utils.checkpoint.checkpoint(
                lambda x: _filled(x.sin()), state, use_reentrant=use_reentrant
            )
            out.square().sum().backward()
        return grads(state)

    # The reentrant form passes the first gradient on by hand, and holds it meanwhile.
    assert _updates(program) == 2 * STEPS - 1


def test_under_saved_tensor_hooks() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        with torch.autograd.graph.save_on_cpu():
            out = _filled(state.sin()).square()
        out.sum().backward()
        return grads(state)

    assert _updates(program) == STEPS


class _Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return gradients[0] * float("nan")


def test_anomaly_mode_names_the_line_of_the_write() -> None:
    with noalias.enabled("slice_update"), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            base = torch.zeros(3, 2)
            x = _leaf(2)
            base[1].copy_(x * 1)
            base[2].mul_(x.new_tensor([float("inf"), 0]))  # the line to be named
            base[2].mul_(0)
            with pytest.raises(RuntimeError, match=r"SliceUpdate.* returned nan values"):
                (base * torch.tensor(float("inf"))).sum().backward()
    text = "".join(str(warning.message) for warning in said)
    assert "base[2].mul_(0)" in text
    assert traceback.extract_stack()[-1].filename in text


def test_what_a_mode_sees_first_of_a_slice_update_is_what_it_sees_of_stock() -> None:
    # What is made once in a process is made by no operator that a mode could refuse or keep.
    done = training.run("""
        import torch, noalias
        from torch.utils._python_dispatch import TorchDispatchMode

        class Seen(TorchDispatchMode):
            def __init__(self):
                super().__init__()
                self.names = []
            def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
                self.names.append(str(function))
                return function(*arguments, **(keywords or {}))

        def seen():
            x = torch.ones(4, 3, requires_grad=True)
            out = x * 1.0
            for t in range(4):
                out[t] = x[t].tanh()
            with Seen() as mode:
                torch.autograd.grad(out.sum(), x, create_graph=True)
            return mode.names

        with noalias.enabled("slice_update"):
            cured = seen()
        assert len(cured) > 10
        assert cured == seen(), cured
    """)
    assert done.returncode == 0, done.stderr


def test_backward_goes_on_after_an_error() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        out = _filled(state)

        def fail(gradient: Tensor) -> None:
            raise ArithmeticError

        handle = state.register_hook(fail)
        with pytest.raises(ArithmeticError):
            out.square().sum().backward(retain_graph=True)
        handle.remove()
        out.square().sum().backward()
        return grads(state)

    assert _updates(program) == 2 * STEPS


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor, y: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> tuple[None, Tensor]:
        return None, gradients[0]


def test_a_write_that_answers_without_a_gradient() -> None:
    def program() -> list[Tensor | None]:
        start, y = _leaf(4, 3), _leaf(3)
        base = start * 2
        _NoGradient.apply(base[1], y)
        base[2] = y
        base.square().sum().backward()
        return grads(start, y)

    # Stock takes the missing gradient for one of the whole base, too.
    assert _updates(program) > 0


def test_real_values_written_to_a_complex_base() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(3)
        base = torch.zeros(4, 3, dtype=torch.complex64)
        for t in range(4):
            base[t] = x * t
            base.imag[t] += x
        base.abs().sum().backward()
        return grads(x)

    _updates(program)


def test_another_dtype_is_converted_back() -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(3, dtype=torch.float64)
        base = torch.zeros(4, 3, dtype=torch.bfloat16)
        for t in range(4):
            base[t] = x * t
        base.square().sum().backward()
        return grads(x)

    assert _updates(program) == 4


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,)])
def test_nothing_to_write(shape: tuple[int, ...]) -> None:
    def program() -> list[Tensor | None]:
        x = _leaf(*shape)
        base = torch.zeros(2, *shape)
        base[0] = x
        base[1].add_(x)
        base.sum().backward()
        return grads(x)

    assert _updates(program) == 0


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode_tangents_are_stocks() -> None:
    def program() -> list[Tensor | None]:
        value, tangent = torch.randn(3), torch.randn(3)
        out = torch.func.jvp(_filled, (value,), (tangent,))
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(_leaf(3), tangent)
            base = dual.expand(4, 3).clone()
            base[1].mul_(dual)
            primal, moved_tangent = torch.autograd.forward_ad.unpack_dual(base)
            return [*out, primal.detach(), moved_tangent]

    _updates(program)


def test_function_transforms_see_stock() -> None:
    def program() -> list[Tensor | None]:
        value = torch.randn(2, 3)
        gradient = torch.func.grad(lambda x: _filled(x).square().sum())
        jacobian = torch.func.jacrev(_filled)(value[0])
        return [gradient(value[0]), torch.func.vmap(gradient)(value), jacobian]

    assert _updates(program) == 0


def test_batched_gradients() -> None:
    def program() -> list[Tensor | None]:
        state = _leaf(3)
        out = _filled(state)
        basis = torch.eye(out.numel()).view(-1, *out.shape)
        return list(torch.autograd.grad(out, state, basis, is_grads_batched=True))

    assert _updates(program) == 0


def test_compiled_programs_see_stock() -> None:
    def program() -> list[Tensor | None]:
        torch.compiler.reset()
        state = _leaf(3)
        compiled = torch.compile(lambda x: _filled(x).square().sum(), backend="aot_eager")
        compiled(state).backward()
        return grads(state)

    assert _updates(program) == 0


def test_threads_share_a_graph() -> None:
    state = _leaf(3)
    with noalias.enabled("slice_update", "sibling_views"):
        out = _filled(state.sin())
        found: list[Tensor] = []

        def work() -> None:
            for _ in range(20):
                loss = (out.square() + out[1] * out[2]).sum()
                found.extend(torch.autograd.grad(loss, state, retain_graph=True))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 80
    for gradient in found:
        assert torch.equal(gradient, found[0])


def test_no_node_holds_the_base() -> None:
    with noalias.enabled("slice_update"):
        state = _leaf(3)
        out = _filled(state)
        loss, seen = out.sum(), weakref.ref(out)
        del out
        assert seen() is None
        loss.backward()
        assert state.grad is not None


@pytest.mark.skipif(
    not hasattr(torch.autograd.graph, "node_creation_hook"), reason="from PyTorch 2.14 on"
)
def test_a_node_that_somebody_watched_appear_stays() -> None:
    nodes: list[torch.autograd.graph.Node] = []
    with noalias.enabled("slice_update"):
        with torch.autograd.graph.node_creation_hook(nodes.append):
            out = torch.zeros(3, 2)
            out[1] = _leaf(2)
        assert out.grad_fn in nodes
        out.square().sum().backward()


def _backward_bytes(steps: int) -> int:
    def prepare() -> Callable[[], None]:
        state = _leaf(16)
        out = torch.empty(steps, 16)
        for t in range(steps):
            state = state * 0.5
            out[t] = state
        return out.square().sum().backward

    return count(prepare).allocated_bytes


def test_bytes_grow_linearly_with_the_number_of_updates() -> None:
    assert _backward_bytes(128) > 3.5 * _backward_bytes(64)
    with noalias.enabled("slice_update"):
        assert _backward_bytes(128) < 2.2 * _backward_bytes(64)


def test_copy_of_an_overlapping_view_onto_itself_raises_in_backward_as_in_stock() -> None:
    def backward() -> str:
        x = torch.zeros(3, requires_grad=True)
        view = (x * 2).expand(2, 3)
        view.copy_(view)
        with pytest.raises(RuntimeError) as caught:
            view.sum().backward()
        return str(caught.value)

    with noalias.enabled():
        message = backward()
    noalias.disable()
    assert message == backward()
    assert "refers to a single memory location" in message
