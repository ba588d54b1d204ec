"""Whose line it is: the innermost frame that is the user's."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest
import rich
import torch

import noalias
from noalias.audit.whose import ENGINE, LIBRARY, USER, Whose


@pytest.mark.parametrize(
    ("file", "whose"),
    [
        (__file__, USER),
        ("train.py", USER),
        ("<stdin>", USER),
        ("/tmp/ipykernel_12/3456.py", USER),
        (torch.__file__, ENGINE),
        (noalias.__file__, ENGINE),
        (json.__file__, ENGINE),
        (collections.__file__, ENGINE),
        ("<frozen runpy>", ENGINE),
        ("<eval_with_key>.1", ENGINE),
        (rich.__file__, LIBRARY),
        ("/home/ada/.venv/lib/python3.12/site-packages/timm/models.py", LIBRARY),
    ],
)
def test_a_file_is_the_users_a_librarys_or_the_engines(file: str, whose: int) -> None:
    assert Whose()(file) == whose


def test_a_file_of_ours_can_count_as_the_users() -> None:
    demo = str(Path(noalias.__file__).parent / "audit" / "demo" / "train.py")

    assert Whose()(demo) == ENGINE
    assert Whose((demo,))(demo) == USER
