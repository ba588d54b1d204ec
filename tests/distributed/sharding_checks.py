"""What every rank runs for test_sharding.py: each check returns plain values, the tests judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.experimental import implicit_replication

import noalias
from noalias import graph
from noalias.bench.placement_cases import CASES
from noalias.bench.placements import measure
from tests.distributed.models import Block, whole_gradients
from tests.distributed.support import Answer, Check, run


def everything() -> dict[str, Answer]:
    """All checks, one after the other: starting ranks is what takes long."""
    return run(CHECKS)


def _mesh(*shape: int) -> DeviceMesh:
    return init_device_mesh("cpu", shape)


def _randn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _placed(mesh: DeviceMesh, tensor: Tensor, *placements: object) -> DTensor:
    return distribute_tensor(tensor, mesh, placements).requires_grad_()  # type: ignore[arg-type]


def placements() -> Answer:
    return {case.name: asdict(measure(case, noalias.linear)) for case in CASES}


def bias_is_counted_once() -> Answer:
    # Three ranks: a third of the bias, three times, is not the bias. The fourth is no part of it.
    mesh = DeviceMesh("cpu", [0, 1, 2])
    bias = _randn(16)
    x = _placed(mesh, torch.zeros(2, 5, 12), Shard(2))
    w = _placed(mesh, _randn(16, 12), Shard(1))
    output = noalias.linear(x, w, _placed(mesh, bias, Replicate()))
    inside = mesh.get_coordinate() is not None
    full = output.full_tensor() if inside else bias.expand(2, 5, 16)
    return {
        "inside": inside,
        "shape": tuple(output.shape),
        "exact": torch.equal(full, bias.expand(2, 5, 16)),
    }


def bad_shapes_raise_before_any_collective() -> Answer:
    mesh = _mesh(4)
    x = _placed(mesh, _randn(5, 6, 12), Shard(0))
    # Sharded as the batch is, so that a good shape would need a collective here.
    bad = _placed(mesh, _randn(16, 11), Shard(0))
    good = _placed(mesh, _randn(16, 12), Shard(0))
    wrong_bias = _placed(mesh, _randn(15), Replicate())
    messages = []
    with CommDebugMode() as mode:
        for weight, bias in ((bad, None), (good, wrong_bias)):
            try:
                noalias.linear(x, weight, bias)
                messages.append("no error")
            except RuntimeError as error:
                messages.append(str(error))
        with torch.no_grad():
            try:
                noalias.linear(x, bad)
                messages.append("no error")
            except RuntimeError as error:
                messages.append(str(error))
    total = mode.get_total_counts()
    dist.barrier()  # nobody is left behind
    return {"messages": messages, "collectives": total}


def bad_dtypes_raise_on_every_rank() -> Answer:
    """Only one rank adds the bias, and only that one's product would notice."""
    mesh = _mesh(4)
    x = _placed(mesh, _randn(5, 6, 12), Shard(2))
    w = _placed(mesh, _randn(16, 12), Shard(1))
    b = _placed(mesh, _randn(16).double(), Replicate())
    gradient = _placed(mesh, _randn(5, 6, 16).double(), Replicate())
    backward = torch.ops.noalias.linear_backward
    calls: tuple[Callable[[], object], ...] = (
        lambda: noalias.linear(x, w, b),
        lambda: backward(x.detach(), gradient.detach(), w.detach(), [True, True, True]),
    )
    messages = []
    for call in calls:
        try:
            call()
            messages.append("no error")
        except RuntimeError as error:
            messages.append(str(error))
    dist.barrier()
    return {"messages": messages}


def plain_tensors_do_not_mix() -> Answer:
    mesh = _mesh(4)
    x, weight = _placed(mesh, _randn(5, 6, 12), Shard(0)), _randn(16, 12)
    try:
        noalias.linear(x, weight)
        message = "no error"
    except RuntimeError as error:
        message = str(error)
    with implicit_replication(), torch.no_grad():
        implicit = noalias.linear(x, weight)
    expected = F.linear(_randn(5, 6, 12), weight)
    return {
        "message": message,
        "implicit": torch.allclose(implicit.full_tensor(), expected, atol=1e-5),
    }


def two_meshes_do_not_mix() -> Answer:
    x = _placed(_mesh(4), _randn(4, 6, 12), Shard(0))
    weight = _placed(_mesh(2, 2), _randn(16, 12), Replicate(), Replicate())
    try:
        noalias.linear(x, weight)
    except RuntimeError as error:
        return {"message": str(error)}
    return {"message": "no error"}


def frozen_operands_cost_nothing() -> Answer:
    """Gradients that nobody asks for are not computed and bring nothing here."""
    mesh = _mesh(4)
    answer: Answer = {}
    for frozen in ("input", "weight", "bias"):
        # The weight is sharded like the batch: it is gathered for the gradient of the input only.
        operands = {
            "input": _placed(mesh, _randn(8, 6, 12), Shard(0)),
            "weight": _placed(mesh, _randn(16, 12), Shard(0)),
            "bias": _placed(mesh, _randn(16), Replicate()),
        }
        operands[frozen].requires_grad_(False)
        output = noalias.linear(*operands.values())
        gradient = distribute_tensor(torch.ones(output.shape), mesh, output.placements)
        with CommDebugMode() as mode:
            output.backward(gradient)
        answer[frozen] = {
            "collectives": mode.get_total_counts(),
            "gradients": [name for name, t in operands.items() if t.grad is not None],
        }
    return answer


def one_node_of_history() -> Answer:
    mesh = _mesh(4)
    x = _placed(mesh, _randn(5, 6, 12), Shard(0))
    output = noalias.linear(x, _placed(mesh, _randn(16, 12), Replicate()))
    names = dict(graph.names(output))
    activated = F.relu(output, inplace=True)
    activated.backward(distribute_tensor(torch.ones(5, 6, 16), mesh, [Shard(0)]))
    leaf = _randn(5, 6, 12).requires_grad_()
    F.relu(F.linear(leaf, _randn(16, 12))).sum().backward()
    return {
        "names": names,
        "after": dict(graph.names(activated)),
        "gradient": torch.allclose(x.grad.full_tensor(), leaf.grad, atol=1e-5),
    }


def bias_of_more_dimensions() -> Answer:
    mesh = _mesh(4)
    x, w, b = _randn(5, 6, 12), _randn(16, 12), _randn(1, 1, 16)
    leaves = [_placed(mesh, x, Shard(1)), *(_placed(mesh, t, Replicate()) for t in (w, b))]
    output = noalias.linear(*leaves)
    output.backward(distribute_tensor(torch.ones(5, 6, 16), mesh, output.placements))
    return {
        "value": torch.allclose(output.full_tensor(), x @ w.t() + b, atol=1e-5),
        "gradient": torch.allclose(leaves[2].grad.full_tensor(), torch.full((1, 1, 16), 30.0)),
    }


def autocast() -> Answer:
    mesh = _mesh(4)
    x = _placed(mesh, _randn(5, 6, 12), Shard(0))
    w = _placed(mesh, _randn(16, 12), Replicate())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = noalias.linear(x, w)
    return {"dtype": str(output.dtype), "local": str(output.to_local().dtype)}


def second_derivative() -> Answer:
    mesh = _mesh(4)
    x, w = _randn(5, 6, 12), _randn(16, 12)

    def penalty(inner: Tensor, weight: Tensor) -> Tensor:
        output = noalias.linear(inner, weight)
        (first,) = torch.autograd.grad(output.square().sum(), inner, create_graph=True)
        return first.square().sum()

    leaf, plain = x.clone().requires_grad_(), w.clone().requires_grad_()
    penalty(leaf, plain).backward()
    placed, weight = _placed(mesh, x, Shard(0)), _placed(mesh, w, Replicate())
    penalty(placed, weight).backward()
    pairs = ((placed.grad, leaf.grad), (weight.grad, plain.grad))
    return {
        "close": [torch.allclose(a.full_tensor(), b, rtol=1e-4, atol=1e-3) for a, b in pairs],
    }


def public_rules_alone() -> Answer:
    """Without our handlers DTensor runs the rules registered through its public interface."""
    handlers = DTensor._op_dispatcher._custom_op_handlers
    mesh = _mesh(2, 2)
    x = _placed(mesh, _randn(4, 6, 12), Shard(0), Shard(2))
    w = _placed(mesh, _randn(16, 12), Replicate(), Shard(1))
    b = _placed(mesh, _randn(16), Replicate(), Replicate())
    ours = noalias.linear(x, w, b)
    kept = handlers.pop(torch.ops.noalias.linear.default)
    try:
        theirs = noalias.linear(x, w, b)
    finally:
        handlers[torch.ops.noalias.linear.default] = kept
    return {
        "placements": [str(ours.placements), str(theirs.placements)],
        "close": torch.allclose(ours.full_tensor(), theirs.full_tensor(), atol=1e-5),
    }


def styles() -> Answer:
    """Column, row and sequence styles: converted, and unchanged under the cure ``linear``."""
    return {
        "converted": _styles(noalias.convert, cure=False),
        "cured": _styles(lambda module: module, cure=True),
    }


def _styles(change: Callable[[nn.Module], nn.Module], *, cure: bool) -> Answer:
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

    torch.manual_seed(0)
    plain = Block()
    x = _randn(3, 8, 12)
    expected = plain(x)
    expected.square().sum().backward()
    gradients = [parameter.grad for parameter in plain.parameters()]
    torch.manual_seed(0)
    block = Block()
    plan = {
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    }
    change(parallelize_module(block, _mesh(4), plan))
    if cure:
        noalias.enable("linear")
    try:
        placed = distribute_tensor(x, _mesh(4), [Shard(1)])
        output = block(placed)
        names = dict(graph.names(output))
        output.square().sum().backward()
    finally:
        if cure:
            noalias.disable("linear")
    got = whole_gradients(block)
    return {
        "value": torch.allclose(output.full_tensor(), expected, atol=1e-5),
        "gradients": all(
            torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(got, gradients, strict=True)
        ),
        "names": names,
    }


def compiled_uneven() -> Answer:
    """A batch that stock cannot flatten, through dynamo and AOT autograd."""
    mesh = _mesh(4)
    x, w, b = _randn(5, 6, 12), _randn(16, 12), _randn(16)
    leaves = [_placed(mesh, x, Shard(0)), *(_placed(mesh, t, Replicate()) for t in (w, b))]
    run = torch.compile(noalias.linear, backend="aot_eager", fullgraph=True)
    output = run(*leaves)
    output.backward(distribute_tensor(torch.ones(5, 6, 16), mesh, output.placements))
    plain = [t.clone().requires_grad_() for t in (x, w, b)]
    expected = F.linear(*plain)
    expected.sum().backward()
    return {
        "value": torch.allclose(output.full_tensor(), expected, atol=1e-5),
        "gradients": [
            torch.allclose(leaf.grad.full_tensor(), p.grad, atol=1e-4)
            for leaf, p in zip(leaves, plain, strict=True)
        ],
    }


def partial_gradient() -> Answer:
    """A gradient that arrives in terms stays in terms."""
    mesh = _mesh(4)
    x, w = _placed(mesh, _randn(5, 6, 12), Replicate()), _placed(mesh, _randn(16, 12), Replicate())
    output = noalias.linear(x, w)
    local = torch.ones(5, 6, 16) / 4
    incoming = DTensor.from_local(local, mesh, [Partial()], run_check=False)
    with CommDebugMode() as mode:
        gradients = torch.autograd.grad(output, (x, w), incoming)
    return {
        "collectives": mode.get_total_counts(),
        "placements": [str(g.placements) for g in gradients],
        "close": torch.allclose(
            gradients[0].full_tensor(), torch.ones(5, 6, 16) @ _randn(16, 12), atol=1e-4
        ),
    }


CHECKS: tuple[Check, ...] = (
    placements,
    bias_is_counted_once,
    bad_shapes_raise_before_any_collective,
    bad_dtypes_raise_on_every_rank,
    plain_tensors_do_not_mix,
    two_meshes_do_not_mix,
    frozen_operands_cost_nothing,
    one_node_of_history,
    bias_of_more_dimensions,
    autocast,
    second_derivative,
    public_rules_alone,
    partial_gradient,
    styles,
    compiled_uneven,
)
