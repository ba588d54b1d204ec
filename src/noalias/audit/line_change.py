"""The change that makes a line write to a new tensor, as concrete as its text allows."""

from __future__ import annotations

import ast

import torch

_MODULES = ("torch", "F", "functional", "nn.functional", "torch.nn.functional")
"""What operators are called on that is no tensor."""

_ASSIGNMENTS = ("copy_", "fill_", "zero_", "index_put_", "masked_fill_")
"""What ``base[...] = value`` calls."""


def out_of_place(operator: str, source: str) -> str:
    """What to write instead of ``source``, which calls ``operator`` (``relu_``), in words."""
    source = _statement(operator, source.partition("  #")[0].rstrip())
    if "inplace=True" in source:
        return "take inplace=True away"
    for sign in ("+", "-", "*", "/", "@", "|", "&"):
        left, found, right = source.partition(f" {sign}= ")
        if found and left.isidentifier():
            return f"write {left} = {left} {sign} {right}"
    called = _call(operator, source)
    if called:
        return called
    if operator in _ASSIGNMENTS:
        return "build the tensor out of place (torch.where, torch.cat, masked_fill)"
    if _exists(operator[:-1]):
        return f"use the out-of-place {operator[:-1]}"
    return "write out of place"


def _call(operator: str, source: str) -> str:
    """The same call of the operator that writes to a new tensor; "" where there is none."""
    on, found, arguments = source.partition(f".{operator}(")
    plain = operator[:-1]
    if not found:
        return ""
    if on in _MODULES:
        written = arguments.partition(",")[0].rstrip(")")
        return f"write {written} = {on}.{plain}({arguments}" if written.isidentifier() else ""
    if on.isidentifier() and operator == "zero_":
        return f"write {on} = torch.zeros_like({on})"
    if on.isidentifier() and operator == "fill_":
        return f"write {on} = torch.full_like({on}, {arguments}"
    if not _exists(plain):
        return ""
    if on.isidentifier():
        return f"write {on} = {on}.{plain}({arguments}"
    return f"use {plain}, which writes to a new tensor"


def _exists(operator: str) -> bool:
    return bool(operator) and (
        hasattr(torch.Tensor, operator) or hasattr(torch.nn.functional, operator)
    )


def _statement(operator: str, source: str) -> str:
    """The one of several statements on a line that calls the operator."""
    try:
        parts = [ast.get_source_segment(source, part) or "" for part in ast.parse(source).body]
    except SyntaxError:  # a part of a statement, or the head of a block
        return source
    calls = [part for part in parts if f".{operator}(" in part]
    return calls[0] if len(calls) == 1 else source
