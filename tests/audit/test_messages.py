"""The messages are raised by the installed PyTorch, so that a new wording shows up here."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from noalias.audit.codes import CODES
from noalias.audit.explanations import SAVES_RESULT, Explanation
from noalias.audit.messages import explain
from noalias.native import NativeUnavailable


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def product() -> torch.Tensor:
    return leaf(4) * 2


def several_views() -> None:
    product().unbind(0)[0].mul_(2)


def custom_function() -> None:
    class Whole(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x.view(-1)

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
            return grad

    result: torch.Tensor = Whole.apply(product())
    result.mul_(2)


def full_backward_hook() -> None:
    layer = nn.Linear(4, 3)
    layer.register_full_backward_hook(lambda *_: None)
    F.relu(layer(leaf(2, 4)), inplace=True)


def reentrant_checkpoint() -> None:
    checkpoint(lambda x: x.view(-1), product(), use_reentrant=True).mul_(2)


def made_under_no_grad() -> None:
    base = product()
    with torch.no_grad():
        view = base.view(2, 2)
    view.mul_(2)


def view_of_a_view_under_no_grad() -> None:
    base = product()
    with torch.no_grad():
        view = base.view(2, 2)
    view.view(-1).mul_(2)


def made_under_inference_mode() -> None:
    base = product()
    with torch.inference_mode():
        view = base.view(2, 2)
    view.mul_(2)


def inference_tensor() -> None:
    with torch.inference_mode():
        tensor = torch.ones(2)
    tensor.mul_(2)


def view_of_a_leaf() -> None:
    leaf(4)[0] = 1


def a_leaf() -> None:
    leaf(4).mul_(2)


def saved_result() -> None:
    y = leaf(4).exp()
    y.mul_(2)
    y.sum().backward()


def saved_weight() -> None:
    layer = nn.Linear(3, 3)
    y = layer(layer(leaf(2, 3)))
    with torch.no_grad():
        layer.weight.mul_(2)
        layer.weight.add_(1)
    y.sum().backward()


def second_backward() -> None:
    loss = leaf(4).exp().sum()
    loss.backward()
    loss.backward()


def detached_view() -> None:
    product().view(2, 2).detach_()


def shared_elements() -> None:
    torch.zeros(1).expand(3).mul_(torch.ones(3))


REFUSED = "In-place on a view that PyTorch refuses"
MADE_UNDER = "In-place on a view that was made under"
OVERWRITTEN = "A value saved for backward was modified in place"

CASES: list[tuple[Callable[[], None], str, str, str]] = [
    (several_views, REFUSED, "NA302", "several views"),
    (custom_function, REFUSED, "NA302", "custom autograd Function"),
    (full_backward_hook, REFUSED, "NA302", "full backward hook"),
    (reentrant_checkpoint, REFUSED, "NA302", "checkpointing"),
    (made_under_no_grad, f"{MADE_UNDER} no_grad", "NA302", "grad mode"),
    (view_of_a_view_under_no_grad, f"{MADE_UNDER} no_grad", "NA302", "grad mode"),
    (made_under_inference_mode, f"{MADE_UNDER} inference_mode", "NA302", "grad mode"),
    (inference_tensor, "In-place on a tensor made under inference_mode", "", "version counter"),
    (view_of_a_leaf, "In-place on a view of a leaf that requires grad", "NA302", "no_grad"),
    (a_leaf, "In-place on a leaf that requires grad", "NA302", "no meaning"),
    (saved_result, OVERWRITTEN, "NA303", "own result"),
    (saved_weight, OVERWRITTEN, "NA303", "optimizer.step"),
    (second_backward, "A second backward through a graph that was freed", "", "detach()"),
    (detached_view, "detach_() on a view", "", "detach()"),
    (shared_elements, "In-place on a tensor whose elements share memory", "", "clone()"),
]


def raised(program: Callable[[], None], *, hush: bool = True) -> str:
    with warnings.catch_warnings():
        if hush:
            warnings.simplefilter("ignore")
        try:
            program()
        except RuntimeError:
            return traceback.format_exc()
    raise AssertionError(f"{program.__name__} raised nothing on PyTorch {torch.__version__}")


@pytest.mark.parametrize(
    ("program", "title", "code", "phrase"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_what_pytorch_raises_is_explained(
    program: Callable[[], None], title: str, code: str, phrase: str
) -> None:
    (found,) = explain(raised(program))
    assert (found.title, found.code) == (title, code)
    assert phrase in f"{found.meaning} {' '.join(found.fixes)}"


def facts(found: Explanation) -> dict[str, str]:
    return dict(found.facts)


def test_an_overwritten_value_is_told_with_shape_maker_and_number_of_writes() -> None:
    (found,) = explain(raised(saved_weight))
    told = facts(found)
    assert told["tensor"] == "torch.FloatTensor [3, 3]"
    assert told["written"] == "2 times after it was saved (version 1 to 3)"
    assert told["made by"].startswith("output 0 of AsStrided")
    assert "neither the line that saved it nor the line that wrote" in found.meaning


def test_a_message_without_a_maker_is_about_a_leaf() -> None:
    message = (
        "one of the variables needed for gradient computation has been modified by an inplace "
        "operation: [torch.cuda.HalfTensor []] is at version 1; expected version 0 instead."
    )
    (found,) = explain(message)
    assert "It is a leaf" in found.meaning
    assert facts(found)["tensor"] == "torch.cuda.HalfTensor []"


def test_anomaly_mode_adds_the_forward_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly(check_nan=False):
            text = raised(saved_result, hush=False)
    log = "\n".join(str(warning.message) for warning in caught) + "\n" + text
    (found,) = explain(log)
    assert facts(found)["backward failed in"] == "ExpBackward0"
    assert "leaf(4).exp()" in facts(found)["its forward line"]


def test_the_users_line_is_among_the_facts() -> None:
    text = raised(a_leaf)
    (found,) = explain(text)
    assert "leaf(4).mul_(2)" in facts(found)["modified at"]


def test_a_message_wrapped_by_a_log_is_found() -> None:
    text = raised(saved_result)
    assert explain(text.replace(" ", "\n      ")) != []


def test_several_messages_of_one_log_are_told_in_their_order() -> None:
    log = raised(second_backward) + raised(a_leaf) + raised(second_backward)
    titles = [found.title for found in explain(log)]
    assert titles[0].startswith("A second backward")
    assert "In-place on a leaf that requires grad" in titles


def test_fsdp2s_warning_is_explained_with_the_module() -> None:
    (found,) = explain(
        "UserWarning: FSDP2-wrapped module (Block, Head) returned a view tensor. An in-place op on "
        "this view (e.g., `x += y`) will silently drop the pre-backward hook"
    )
    assert (found.code, facts(found)["module"]) == ("NA301", "Block, Head")


def test_noalias_own_error_is_explained_with_its_fix() -> None:
    error = NativeUnavailable("there is no C++ compiler on PATH", fix="apt install g++")
    (found,) = explain(f"noalias: {error}")
    assert found.fixes == ("apt install g++",)
    assert "no C++ compiler" in found.message


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_explained_from_the_table(code: str) -> None:
    (found,) = explain(f"train.py:3: {code} something")
    assert found.title == f"{code}: {CODES[code].title}"


@pytest.mark.parametrize(
    "text", ["", "all is well", "ZeroDivisionError: division by zero", "NA999", "NA1011",
             "RuntimeError: CUDA out of memory"],
)  # fmt: skip
def test_what_is_not_known_is_not_explained(text: str) -> None:
    assert explain(text) == []


@pytest.mark.parametrize("name", sorted(SAVES_RESULT))
def test_operators_said_to_save_their_result_do(name: str) -> None:
    x = torch.rand(3, requires_grad=True) + 0.5
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "Cumprod": lambda: x.cumprod(0),
        "LogSoftmax": lambda: x.log_softmax(0),
        "Pow": lambda: torch.pow(2.0, x),
        "Softmax": lambda: x.softmax(0),
    }
    y = calls.get(name, lambda: getattr(torch, name.lower())(x))()
    assert y.grad_fn is not None
    assert y.grad_fn.name().startswith(name)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


PIECES = [raised(case[0]).strip() for case in CASES[:3]] + [
    "Output 0 of", "is a view and is being modified inplace. ", "[torch.FloatTensor [", "\x1b[31m",
    "[rank0]: ", '  File "', '", line ', "Error detected in ", "NA101", "at version ", "\n",
    " fix: ",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=20), max_size=12).map("".join))
def test_any_text_is_explained_or_not_but_never_breaks(text: str) -> None:
    for found in explain(text):
        assert found.title
        assert found.meaning
        assert all(found.fixes)
