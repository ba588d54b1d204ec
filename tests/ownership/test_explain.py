"""explain says in words who can see the base."""

from __future__ import annotations

import threading
import weakref

import pytest
import torch
from torch import Tensor

import noalias
from noalias import native

kept_in_module: list[Tensor] = []


def leaf() -> Tensor:
    return torch.rand(2, 3, requires_grad=True)


def test_hidden_base() -> None:
    explanation = noalias.explain((leaf() * 2).view(-1))

    assert explanation.hidden
    assert explanation.observers == ()
    assert "nobody else can see it" in str(explanation)


def test_ordinary_tensor_has_no_base() -> None:
    explanation = noalias.explain(leaf() * 2)

    assert not explanation.is_view
    assert "it is no view" in str(explanation)


def test_name_is_named_with_its_function() -> None:
    the_base = leaf() * 2
    explanation = noalias.explain(the_base.view(-1))

    assert explanation.verdict == "python_name"
    assert "the variable 'the_base' in test_name_is_named_with_its_function" in str(explanation)


def test_attribute_and_container_are_named() -> None:
    class Holder:
        activation: Tensor

    holder = Holder()
    holder.activation = leaf() * 2
    assert "the attribute 'activation' of a Holder" in str(
        noalias.explain(holder.activation.view(-1))
    )
    kept_in_module.append(leaf() * 2)
    assert "a list of 1" in str(noalias.explain(kept_in_module[0].view(-1)))
    kept_in_module.clear()


def test_other_view_is_named() -> None:
    base = leaf() * 2
    first_row = base[0]
    view = base.view(-1)
    del base
    explanation = noalias.explain(view)

    assert explanation.verdict == "other_owner"
    assert "another view of it, 3 float32 (the variable 'first_row' in" in str(explanation)
    assert first_row.shape == (3,)


def test_node_that_saved_the_base_is_named() -> None:
    view = leaf().exp().view(-1)
    explanation = noalias.explain(view)

    assert explanation.verdict == "shared_storage"
    assert "the node ExpBackward0, which saved it for backward (_saved_result)" in str(explanation)


def test_alias_over_the_same_memory_is_named() -> None:
    base = leaf() * 2
    detached = base.detach()
    view = base.view(-1)
    del base
    assert "a tensor over the same memory, 2x3 float32 (the variable 'detached' in" in str(
        noalias.explain(view)
    )
    assert detached.shape == (2, 3)


def test_weak_reference_hook_and_storage_are_named() -> None:
    base = leaf() * 2
    reference = weakref.ref(base)
    view = base.view(-1)
    del base
    assert "a weak reference" in str(noalias.explain(view))
    assert reference() is not None

    hooked = leaf() * 2
    hooked.register_hook(lambda grad: grad)
    view = hooked.view(-1)
    del hooked
    assert "a hook or retain_grad on the base" in str(noalias.explain(view))

    base = leaf() * 2
    storage = base.untyped_storage()
    view = base.view(-1)
    del base
    assert "untyped_storage()" in str(noalias.explain(view))
    assert storage.nbytes() == 24


def test_explaining_changes_nothing() -> None:
    view = (leaf() * 2).view(-1)
    for _ in range(3):
        assert noalias.explain(view).hidden
    with noalias.enabled("hidden_base"):
        view.mul_(2)

    assert not view._is_view()


def test_history_of_a_stale_view_is_not_brought_up_to_date() -> None:
    """Reading its grad_fn would do that, under a mutex another thread may hold: a deadlock."""
    core = native.load()
    base = leaf() * 2
    stale, written = base[0], base[1]
    written.mul_(3)

    noalias.explain(written)

    assert not core.view_history(stale).rewritten
    assert stale.grad_fn is not None
    assert core.view_history(stale).rewritten


def test_what_another_thread_has_recorded_is_not_read() -> None:
    """It may be running, and releasing, it."""
    squares: list[Tensor] = []

    def saves(base: Tensor) -> None:
        squares.append(base.square())

    base = leaf() * 2
    saves(base)
    assert "the node PowBackward0, which saved it" in str(noalias.explain(base.view(-1)))

    other = leaf() * 2
    thread = threading.Thread(target=saves, args=(other,))
    thread.start()
    thread.join()
    assert "PowBackward0" not in str(noalias.explain(other.view(-1)))


def test_no_tensor_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected a tensor, not list"):
        noalias.explain([1.0])  # type: ignore[arg-type]


def test_a_text_is_sent_to_the_command_that_reads_it() -> None:
    with pytest.raises(TypeError, match="not str; the command `noalias explain` reads error texts"):
        noalias.explain("RuntimeError: a view")  # type: ignore[arg-type]
