"""``noalias.Linear`` and the way there and back for a whole model."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import noalias
from noalias import graph

pytestmark = pytest.mark.usefixtures("core")


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2, bias=False))


def test_state_and_representation_are_those_of_nn_linear() -> None:
    ours, stock = noalias.Linear(4, 5), nn.Linear(4, 5)
    assert list(ours.state_dict()) == list(stock.state_dict())
    assert repr(ours) == repr(stock)
    stock.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, 4)
    assert torch.equal(ours(x), stock(x))
    assert isinstance(ours, nn.Linear)


def test_in_place_activation_leaves_one_node_a_layer() -> None:
    net = noalias.convert(model())
    y = net(torch.randn(2, 3, 4))
    names = graph.names(y)
    assert names == {"LinearBackward0": 2, "ReluBackward0": 1, "AccumulateGrad": 3}


def test_convert_keeps_parameters_hooks_and_mode_and_can_be_undone() -> None:
    net = model().eval()
    parameters = list(net.parameters())
    calls: list[str] = []
    net[0].register_forward_hook(lambda *_: calls.append("hook"))
    assert noalias.convert(net) is net
    assert [type(m) for m in net] == [noalias.Linear, nn.ReLU, noalias.Linear]
    net(torch.randn(2, 3, 4))
    assert calls == ["hook"]
    noalias.convert(net, undo=True)
    assert [type(m) for m in net] == [nn.Linear, nn.ReLU, nn.Linear]
    assert all(a is b for a, b in zip(net.parameters(), parameters, strict=True))
    assert not net.training


def test_convert_takes_a_linear_itself_and_leaves_subclasses_alone() -> None:
    class Own(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 2

    assert type(noalias.convert(nn.Linear(2, 2))) is noalias.Linear
    net = nn.Sequential(Own(2, 2), nn.modules.linear.NonDynamicallyQuantizableLinear(2, 2))
    noalias.convert(net)
    assert type(net[0]) is Own
    assert type(net[1]) is nn.modules.linear.NonDynamicallyQuantizableLinear


@pytest.mark.parametrize("wrong", [torch.ones(2), None, nn.Linear])
def test_convert_of_anything_else_raises_type_error(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"module must be an nn\.Module"):
        noalias.convert(wrong)


def test_copying_pickling_and_saving() -> None:
    net = noalias.convert(model())
    x = torch.randn(2, 3, 4)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other[0]) is noalias.Linear
        assert torch.equal(other(x), net(x))
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    stock = model()
    stock.load_state_dict(torch.load(file))
    assert torch.equal(stock(x), net(x))


def test_lazy_parametrized_and_weight_normed_layers_work() -> None:
    x = torch.randn(2, 3, 4)
    normed = nn.utils.parametrizations.weight_norm(noalias.Linear(4, 5))
    stock = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    stock.load_state_dict(normed.state_dict())
    assert torch.equal(normed(x), stock(x))


def test_dtype_and_device_arguments() -> None:
    layer = noalias.Linear(4, 5, dtype=torch.float64, device="meta")
    assert layer.weight.dtype is torch.float64
    assert layer(torch.empty(2, 3, 4, dtype=torch.float64, device="meta")).shape == (2, 3, 5)


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_dynamic_quantization_looks_for_the_exact_type_and_finds_it_after_undoing() -> None:
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("this build of PyTorch has no quantized engine")
    quantize = torch.ao.quantization.quantize_dynamic
    net = noalias.convert(model()).eval()
    assert type(quantize(net, {nn.Linear})[0]) is noalias.Linear
    assert type(quantize(noalias.convert(net, undo=True), {nn.Linear})[0]) is not nn.Linear
