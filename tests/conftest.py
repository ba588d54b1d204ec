"""What all tests share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

# Before anything loads the core: in development its warnings are errors.
os.environ.setdefault("NOALIAS_WERROR", "1")

if TYPE_CHECKING:
    from noalias.native.core import Core


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    kept = [item for item in items if item.get_closest_marker("long") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    torch.manual_seed(0)


@pytest.fixture(scope="session")
def core() -> Core:
    """The compiled core; a machine that cannot build it fails the test, with the reason."""
    from noalias.native import load

    return load()
