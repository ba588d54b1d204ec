"""Random programs, most of them valid, many writing in place to a view of a hidden base.

Each statement is tried once on stock PyTorch while the program is being written (the `draft`): that
gives shapes, and a statement that raises is usually thrown away. Some that raise are kept inside
``try``, those whose error a cure may make go away nearly always.
"""

from __future__ import annotations

import warnings
from random import Random

import torch

from . import grow_engine, grow_names, grow_regions, grow_tensors  # noqa: F401
from .draft import DTYPES, Draft, grow
from .statements import Backward, Leaf, Program, reads, walk

WEIGHTS = {
    "let": 10.0,
    "hidden_view": 8.0,
    "view": 6.0,
    "write": 12.0,
    "unpack": 1.5,
    "foreach": 0.7,
    "alias": 0.7,
    "delete": 4.0,
    "stash": 0.5,
    "weak": 0.7,
    "export": 0.6,
    "hook": 3.0,
    "peek": 1.5,
    "module": 1.0,
    "backward": 2.0,
    "block": 1.5,
    "loop": 1.0,
    "call": 1.5,
    "dual": 0.5,
}

# A theme makes one kind of statement frequent, so that its interplay with everything else is tried.
THEMES: dict[str, dict[str, float]] = {
    "general": {},
    "hidden": {"hidden_view": 20, "write": 20},
    "visible": {"view": 15, "delete": 8, "alias": 2, "weak": 2, "export": 2, "stash": 2},
    "loops": {"loop": 10},
    "reads": {"view": 20, "loop": 3, "write": 4},
    "transforms": {"call": 10},
    "forward": {"dual": 8},
    "hooks": {"hook": 12, "backward": 5},
    "modules": {"module": 8},
    "engine": {"backward": 12, "hook": 4},
    "blocks": {"block": 10},
}


def generate(seed: int, index: int) -> Program:
    """Program number ``index`` of the campaign ``seed``; the same for the same PyTorch."""
    rng = Random(f"{seed}/{index}")
    torch.default_generator.manual_seed(0)
    draft = Draft(rng)
    draft.dtype = rng.choices(list(DTYPES), list(DTYPES.values()))[0]
    weights = WEIGHTS | THEMES[rng.choice(list(THEMES))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rng.randint(1, 2)):
            name = draft.new_name("x")
            draft.add(Leaf(name, _shape(rng), draft.dtype, True))
        for _ in range(rng.randint(4, 16)):
            grow(draft, weights)
        _finish(draft)
    return tuple(draft.statements)


def _shape(rng: Random) -> tuple[int, ...]:
    dims = rng.choices(range(5), [1, 3, 6, 5, 1])[0]
    return tuple(rng.choices(range(5), [0.2, 1, 5, 4, 2])[0] for _ in range(dims))


def _finish(draft: Draft) -> None:
    """Ends the program with a backward, if it lacks one, and takes out leaves nobody reads."""
    if not any(isinstance(item, Backward) for item in draft.statements[-2:]):
        grow_engine.backward(draft)
    used = set().union(*(reads(item) for item in walk(tuple(draft.statements))), set())
    draft.statements = [
        item for item in draft.statements if not isinstance(item, Leaf) or item.out in used
    ]
