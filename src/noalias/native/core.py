"""What the compiled module ``noalias_core`` offers, as a type.

The module is built on the user's machine, so no stub file can lie beside it: ``load()`` returns it
as this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.autograd.graph import Node
    from torch.nn import Module


class ViewFacts(Protocol):
    """What the proof saw of a tensor (``csrc/view_facts.h``)."""

    is_view: bool
    verdict: str
    base_owners: int
    storage_owners: int
    creation: str
    base_requires_grad: bool


class Call(Protocol):
    """An operator that the program called (``csrc/trail.h``); numbers are the core's."""

    op: str
    place: int
    module: int


class LoggedWrite(Protocol):
    """A write to memory (``csrc/trail.h``)."""

    op: str
    place: int
    module: int
    version: int
    shape: list[int]


class ViewHistory(Protocol):
    """What the audit says of a view (``csrc/view_history.h``)."""

    is_view: bool
    base: int
    storage: int
    base_bytes: int
    share: float
    made: int
    thread: int
    node: str
    rewritten: bool
    hooks: int


class RewrittenHistories(Protocol):
    """``CopySlices`` nodes of one line (``csrc/census.h``)."""

    call: Call
    base_bytes: int
    count: int
    view_bytes: int
    restored: int
    restored_bytes: int
    chained: int
    first_writes: int
    small: int
    sequence_number: int
    thread: int
    wrapped: str


class SliceReads(Protocol):
    """Slices of one tensor read by one line (``csrc/census.h``)."""

    call: Call
    node: str
    base_shape: list[int]
    slice_shape: list[int]
    dtype: str
    base_bytes: int
    count: int
    read_from: str


class CompiledCalls(Protocol):
    """Nodes of compiled code (``csrc/census.h``)."""

    call: Call
    node: str
    count: int


class Census(Protocol):
    """What a backward call is about to pay (``csrc/census.h``)."""

    histories: list[RewrittenHistories]
    reads: list[SliceReads]
    compiled: list[CompiledCalls]
    nodes: int


class Core(Protocol):
    """The functions of ``noalias_core``."""

    __file__: str

    # linear (csrc/linear_python.cpp)

    def linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...

    def register_linear(
        self, general: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    ) -> None: ...

    def whole_capture(self) -> bool: ...

    def set_whole_capture(self, on: bool) -> None: ...

    def pattern_gradients(self) -> bool: ...

    def set_pattern_gradients(self, on: bool) -> None: ...

    def set_own_rule_question(self, question: Callable[[type], bool]) -> None: ...

    # the cures (csrc/python_module.cpp)

    def known_cures(self) -> list[str]: ...

    def enable_cure(self, name: str) -> None: ...

    def disable_cure(self, name: str) -> None: ...

    def active_cures(self) -> list[str]: ...

    def keep_stock_effects(self, on: bool) -> None: ...

    def counters(self) -> dict[str, int]: ...

    def reset_counters(self) -> None: ...

    # who sees what, and events (csrc/python_ownership.cpp)

    def facts_about(self, tensor: Tensor) -> ViewFacts: ...

    def relation_to(self, tensor: Tensor, other: Tensor) -> str: ...

    def live_tensors(self) -> list[Tensor]: ...

    def has_live_object_of(self, kind: type) -> bool: ...

    def release_hidden_base(self, tensor: Tensor) -> bool: ...

    def set_listener(
        self, listener: Callable[..., None] | None, views_only: bool = False
    ) -> None: ...

    # graphs of other threads (csrc/shared_graph.cpp)

    def recorded_node(self, tensor: Tensor) -> Node | None: ...

    def is_of_this_thread(self, node: Node) -> bool: ...

    # the audit's (csrc/python_audit.cpp)

    def start_trail(self, whose: Callable[[str], int]) -> None: ...

    def stop_trail(self) -> None: ...

    def forget_places(self) -> None: ...

    def start_modules(self, number_of: Callable[[Module, Module, int], int], /) -> None: ...
    def stop_modules(self) -> None: ...
    def enter_module(self, module: Module, /) -> None: ...
    def leave_module(self, module: Module, /) -> int | None: ...

    def current_call(self) -> Call: ...

    def calls_before(self, most: int) -> list[Call]: ...

    def call_behind(self, sequence_number: int, thread: int) -> Call | None: ...

    def file_and_line(self, place: int) -> tuple[str, int]: ...

    def writes_to(self, storage: int) -> list[LoggedWrite]: ...

    def trail_size(self) -> tuple[int, int]: ...

    def current_thread(self) -> int: ...

    def view_history(self, tensor: Tensor) -> ViewHistory: ...

    def take_census(self, roots: list[Tensor]) -> Census: ...

    def start_copy_log(self) -> None: ...

    def stop_copy_log(self) -> list[tuple[int, int]]: ...

    def observed(self, function: Callable[..., object], observer: object) -> object: ...
