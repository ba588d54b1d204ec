from __future__ import annotations

import warnings

import pytest

import noalias
from noalias.linear import composite
from tests.linear.support import Linear


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
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch._decomp.decompositions_for_jvp  # noqa: F401
