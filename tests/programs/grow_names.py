"""Statements about who holds a tensor: names, lists, weak references, exported storage."""

from __future__ import annotations

from .draft import Draft, grows
from .statements import Alias, Delete, Deref, Export, Peek, Stash, WeakRef


@grows("alias")
def _alias(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None:
        draft.add(Alias(draft.new_name(), source))


@grows("delete")
def _delete(draft: Draft) -> None:
    names = draft.tensors(local=draft.function)
    if len(names) > 3:
        draft.add(Delete(draft.rng.choice(names[:-1])))


@grows("stash")
def _stash(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(Stash(source))


@grows("weak")
def _weak(draft: Draft) -> None:
    references = [
        name for name, value in draft.values.items() if name.startswith("r") and callable(value)
    ]
    if references and draft.rng.random() < 0.5:
        draft.add(Deref(draft.new_name(), f"${draft.rng.choice(references)}"))
    else:
        source = draft.recent(draft.tensors())
        if (
            source is not None
            and draft.add(WeakRef(draft.new_name("r"), source)) is None
            and draft.rng.random() < 0.5
        ):
            draft.add(Delete(source))


@grows("export")
def _export(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(
            Export(draft.new_name("e"), source, draft.rng.choice(["numpy", "dlpack", "storage"]))
        )


@grows("peek")
def _peek(draft: Draft) -> None:
    source = draft.recent(draft.tensors())
    if source is not None and not draft.function:
        draft.add(Peek(source))
