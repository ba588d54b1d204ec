"""Options of `noalias bench`, from text to values.

Each converter raises `argparse.ArgumentTypeError`, which argparse prints after the option's name,
with exit code 2.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")


def positive(given: str) -> int:
    try:
        value = int(given)
    except ValueError:
        raise ArgumentTypeError(f"{given!r} is not a whole number; give 1 or more") from None
    if value < 1:
        raise ArgumentTypeError(f"{given} is too small; give 1 or more")
    return value


def seconds(given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        raise ArgumentTypeError(f"{given!r} is not a number of seconds; give 10, say") from None
    # Written this way round, it refuses NaN too.
    if not value >= 0:
        raise ArgumentTypeError(f"{given} is no length of time; give 0 or more seconds")
    return value


def one_of(known: Iterable[str]) -> Callable[[str], str]:
    """A converter that takes the names in `known`, with PyTorch's own decorations allowed."""
    names = tuple(known)

    def convert(given: str) -> str:
        name = given.removeprefix("torch.").removesuffix("_")
        if name not in names:
            raise ArgumentTypeError(f"{given!r} is not known; choose from {', '.join(names)}")
        return name

    return convert


def shape(given: str) -> tuple[int, ...]:
    parts = re.split(r"[x×,]", given.replace(" ", ""))
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ArgumentTypeError(f"{given!r} is not a shape; give extents like 64x64x64x1000")
    extents = tuple(map(int, parts))
    if 0 in extents:
        raise ArgumentTypeError(
            f"{given} has no elements, so there is nothing to time; give extents of 1 or more"
        )
    return extents


def steps(given: str) -> tuple[int, ...]:
    numbers = tuple(positive(part.strip()) for part in given.split(","))
    if any(a >= b for a, b in pairwise(numbers)):
        raise ArgumentTypeError(f"{given} does not increase; give numbers like 64,256,1024")
    return numbers


def device(given: str) -> str:
    """A device that is here and whose memory can be counted: the CPU, or a CUDA device."""
    import torch

    try:
        asked = torch.device(given)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ArgumentTypeError(f"{given!r} is no device ({reason}); give cpu or cuda") from None
    if asked.type == "cpu":
        return "cpu"
    if asked.type != "cuda":
        raise ArgumentTypeError(
            f"{given} is not measured: bytes are counted on cpu and cuda only; give one of them"
        )
    if not torch.cuda.is_available():
        raise ArgumentTypeError(
            f"{given}: PyTorch {torch.__version__} sees no CUDA device here; give cpu, or install "
            "a build for CUDA on a machine that has one"
        )
    if asked.index is not None and asked.index >= torch.cuda.device_count():
        raise ArgumentTypeError(
            f"{given} does not exist; the last device is cuda:{torch.cuda.device_count() - 1}"
        )
    return str(asked)


def file(given: str) -> Path:
    path = Path(given)
    if path.is_dir():
        raise ArgumentTypeError(f"{given} is a folder; give the name of a file in it")
    if not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"the folder of {given} does not exist; create it first")
    return path


def picture(given: str) -> Path:
    path = file(given)
    if path.suffix not in PICTURE_SUFFIXES:
        known = ", ".join(PICTURE_SUFFIXES)
        raise ArgumentTypeError(f"{given} is in no format that can be drawn; end it in {known}")
    return path
