"""Options: what is taken, and that a refusal names value, reason and fix."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import pytest
import torch

from noalias.bench import options


@pytest.mark.parametrize("given", ["2x3x8", "2,3,8", "2×3×8", "2 x 3 x 8"])
def test_shapes_as_people_write_them(given: str) -> None:
    assert options.shape(given) == (2, 3, 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("0x3", "0x3 has no elements, so there is nothing to time; give extents of 1 or more"),
        ("axb", "'axb' is not a shape; give extents like 64x64x64x1000"),
        ("", "'' is not a shape"),
        ("2x-3", "'2x-3' is not a shape"),
        ("2x3.5", "'2x3.5' is not a shape"),
    ],
)
def test_shapes_that_cannot_be_measured(given: str, said: str) -> None:
    with pytest.raises(ArgumentTypeError) as refusal:
        options.shape(given)
    assert said in str(refusal.value)


@pytest.mark.parametrize(("given", "said"), [("0", "too small"), ("ten", "not a whole number")])
def test_counts_must_be_positive(given: str, said: str) -> None:
    with pytest.raises(ArgumentTypeError, match=said):
        options.positive(given)


@pytest.mark.parametrize("given", ["-1", "nan", "soon"])
def test_times_must_be_times(given: str) -> None:
    with pytest.raises(ArgumentTypeError, match="give"):
        options.seconds(given)


def test_names_are_taken_as_pytorch_writes_them() -> None:
    convert = options.one_of(["float32", "relu"])
    assert convert("torch.float32") == "float32"
    assert convert("relu_") == "relu"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ArgumentTypeError, match="'int8' is not known; choose from float32"):
        options.one_of(["float32"])("int8")


def test_steps_increase() -> None:
    assert options.steps("64, 128") == (64, 128)
    with pytest.raises(ArgumentTypeError, match="128,64 does not increase"):
        options.steps("128,64")


def test_the_cpu_is_a_device_and_a_word_is_not() -> None:
    assert options.device("cpu") == "cpu"
    with pytest.raises(ArgumentTypeError, match="'gpu' is no device"):
        options.device("gpu")


def test_devices_whose_bytes_are_not_counted_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="meta is not measured"):
        options.device("meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is here")
def test_cuda_without_a_device_says_so() -> None:
    with pytest.raises(ArgumentTypeError, match=r"cuda: PyTorch .* sees no CUDA device here"):
        options.device("cuda")


def test_files_need_a_folder_that_exists(tmp_path: Path) -> None:
    assert options.file(str(tmp_path / "a.json")) == tmp_path / "a.json"
    with pytest.raises(ArgumentTypeError, match="is a folder"):
        options.file(str(tmp_path))
    with pytest.raises(ArgumentTypeError, match="does not exist; create it first"):
        options.file(str(tmp_path / "no" / "a.json"))


def test_pictures_end_in_a_format(tmp_path: Path) -> None:
    assert options.picture(str(tmp_path / "a.svg")).suffix == ".svg"
    with pytest.raises(ArgumentTypeError, match="no format that can be drawn"):
        options.picture(str(tmp_path / "a.txt"))
