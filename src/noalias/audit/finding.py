"""One finding: a line of the user's program that pays for an alias, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from noalias.audit.codec import Json, decode, encode

SCHEMA_VERSION = 1
"""Version of the JSON of findings and reports. Raised when a key changes its meaning or goes;
new keys do not raise it, and readers ignore keys they do not know."""

Verdict = Literal["hidden", "observable", "unknown"]
"""`hidden`: nobody else can see the base. `observable`: `observers` says who does. `unknown`: the
proof could not be carried through (a tensor subclass, a functorch wrapper)."""

NodeKind = Literal["op", "view", "copy", "leaf", "cut"]
"""How a node of a graph excerpt is drawn: an operator's node, a view's, one that exists only
to copy (`CopySlices`, `AsStrided`), a leaf, or the edge of the excerpt."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was done: an operator (or node) and the user's line that ran it."""

    operator: str
    file: str = ""
    line: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Lines of a source file around a finding, without line ends."""

    first_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of a graph excerpt. `id` is unique within its graph."""

    id: str
    name: str
    kind: NodeKind = "op"


@dataclass(frozen=True, slots=True)
class Graph:
    """A small backward graph. An edge (a, b) says that a's gradient flows to b, by node id."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[tuple[str, str], ...]

    def __post_init__(self) -> None:
        known = {node.id for node in self.nodes}
        if len(known) != len(self.nodes):
            raise ValueError("two nodes of the graph have the same id")
        for edge in self.edges:
            for end in edge:
                if end not in known:
                    raise ValueError(f"an edge names the node {end!r}, which the graph lacks")


@dataclass(frozen=True, slots=True)
class GraphExcerpt:
    """The backward graph around a finding: in stock PyTorch, and with the cure."""

    before: Graph
    after: Graph


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of one module that pays for an alias.

    Attributes:
        code: `NA101` ... `NA401`, see `noalias.audit.codes`.
        file, line: the user's line, the first frame outside torch, site-packages and noalias.
            `line` counts from 1; 0 where no source line is known.
        module: path of the module whose forward ran, e.g. ``blocks.0.act``; "" outside modules.
        operator: e.g. ``aten::relu_``.
        shape, dtype: of the tensor that was written to (NA2xx: of one slice).
        bytes: size of that tensor's base in bytes, which is what one `CopySlices` copy moves.
        count: how often this happened per step, of the recorded steps that it happened in, rounded
            up; in the whole run for NA302 and NA303.
        verdict, observers: whether somebody else can see the base, and who, in words.
        copies: predicted base-sized copies in one step's backward, all occurrences together.
        extra_peak_bytes: predicted bytes that one of its nodes holds in backward beyond what its
            operator needs: the step's peak grows by as much where it lies there, else by less.
        cure: what to do: ``enable()`` or the concrete change to the line.
        source: text of the line.
        made_by: how the view was made (NA303: unused).
        message: one sentence for people.
        saved_by: NA303 only: the node that saved the value, and the line that ran it.
        versions: NA303 only: version counter when saved, and when read in backward.
        hook: NA301 only: where the dropped hook was registered.
        excerpt: lines around the finding, where the source could be read.
        graph: the backward graph around it, before and after the cure.
        ranks: in a merged report, the ranks that have this finding.
    """

    code: str
    file: str
    line: int
    module: str
    operator: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    count: int
    verdict: Verdict
    observers: tuple[str, ...]
    copies: int
    extra_peak_bytes: int
    cure: str
    source: str = ""
    made_by: Origin | None = None
    message: str = ""
    saved_by: Origin | None = None
    versions: tuple[int, int] | None = None
    hook: Origin | None = None
    excerpt: Excerpt | None = None
    graph: GraphExcerpt | None = None
    ranks: tuple[int, ...] = ()

    @property
    def bytes_moved(self) -> int:
        """Predicted bytes that this finding's copies move in one step's backward."""
        return self.copies * self.bytes

    @property
    def place(self) -> str:
        """``file:line``, or the file alone where no line is known."""
        return f"{self.file}:{self.line}" if self.line > 0 else self.file

    def to_json(self) -> Json:
        """The finding as JSON values; see docs/audit-json.md."""
        return encode(self)

    @classmethod
    def from_json(cls, value: Json, where: str = "finding") -> Finding:
        """Read a finding back.

        Raises:
            FormatError: a key is missing or has the wrong type; names the key.
        """
        return decode(cls, value, where)
