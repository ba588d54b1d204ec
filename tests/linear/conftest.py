from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

import noalias
from noalias.linear import composite, op
from tests.linear.support import Linear

if TYPE_CHECKING:
    from noalias.native.core import Core


@pytest.fixture(scope="session")
def core() -> Core:
    """The compiled core with its kernels behind the operators."""
    return op.require_core()


@pytest.fixture(params=["core", "composite"])
def linear(request: pytest.FixtureRequest) -> Linear:
    """The operator with its core, and what answers where the core cannot be built."""
    if request.param == "composite":
        return composite.linear
    request.getfixturevalue("core")
    return noalias.linear


@pytest.fixture(autouse=True, scope="session")
def _forward_mode_is_loaded() -> None:
    """PyTorch compiles TorchScript when forward mode is first used, and warns of its age."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")
        import torch._decomp.decompositions_for_jvp  # noqa: F401
