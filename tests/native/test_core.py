"""The type that Python code is checked against is the module that is compiled."""

from __future__ import annotations

from noalias.native.core import Core, ViewFacts


def public(names: object) -> set[str]:
    return {name for name in dir(names) if not name.startswith("_")}


def test_core_has_every_function_of_its_type_and_no_other(core: Core) -> None:
    functions = {name for name in public(core) if not isinstance(getattr(core, name), type)}

    assert functions == public(Core)


def test_facts_have_every_field_of_their_type_and_no_other(core: Core) -> None:
    import torch

    assert public(core.facts_about(torch.ones(2))) == set(ViewFacts.__annotations__)
