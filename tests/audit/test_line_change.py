"""What a finding tells to write instead of its line."""

from __future__ import annotations

import pytest

from noalias.audit.line_change import out_of_place

BUILD = "build the tensor out of place (torch.where, torch.cat, masked_fill)"


@pytest.mark.parametrize(
    ("operator", "source", "change"),
    [
        ("add_", "x += 1", "write x = x + 1"),
        ("relu_", "x = F.relu(y, inplace=True)", "take inplace=True away"),
        ("mul_", "y.mul_(3)  # in place", "write y = y.mul(3)"),
        ("mul_", "base = x * 2; y.mul_(3); y.sum().backward()", "write y = y.mul(3)"),
        ("mul_", "if late: y.mul_(3)", "use mul, which writes to a new tensor"),
        ("mul_", "out[t].mul_(2)", "use mul, which writes to a new tensor"),
        ("relu_", "F.relu_(y)", "write y = F.relu(y)"),
        ("leaky_relu_", "F.leaky_relu_(y, 0.1)", "write y = F.leaky_relu(y, 0.1)"),
        ("relu_", "torch.relu_(a + b)", "use the out-of-place relu"),
        ("leaky_relu_", "x = self.act(x)", "use the out-of-place leaky_relu"),
        ("copy_", "out[t] = h", BUILD),
        ("zero_", "y.view(-1).zero_()", BUILD),
    ],
)
def test_change_is_what_the_text_of_the_line_allows(
    operator: str, source: str, change: str
) -> None:
    assert out_of_place(operator, source) == change


@pytest.mark.parametrize(
    ("operator", "source", "change"),
    [
        ("zero_", "y.zero_()", "write y = torch.zeros_like(y)"),
        ("fill_", "y.fill_(2)", "write y = torch.full_like(y, 2)"),
        ("uniform_", "y.uniform_()", "write out of place"),
        ("", "y", "write out of place"),
    ],
)
def test_change_names_no_operator_that_is_not_there(
    operator: str, source: str, change: str
) -> None:
    """PyTorch has no `zero`, and no `uniform`."""
    assert out_of_place(operator, source) == change
