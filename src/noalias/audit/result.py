"""What an audit found and measured: the data that lies between recording and reporting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from noalias.audit.codec import FormatError, Json, decode, encode
from noalias.audit.finding import SCHEMA_VERSION, Finding


@dataclass(frozen=True, slots=True)
class Environment:
    """The versions and the machine that a report's numbers belong to; `date` is ISO 8601."""

    torch: str = ""
    noalias: str = ""
    python: str = ""
    device: str = ""
    threads: int = 0
    date: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """What was recorded: optimizer steps, backward calls, and whole seconds of recording."""

    seen: int = 0
    backward_calls: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One variant of the step, measured. Seconds and bytes, for one step.

    `copies` counts `aten::copy_` calls, `bytes_moved` the bytes they wrote; `bytes_allocated` is
    the sum of positive allocations, `peak_bytes` the highest sum of live ones.
    """

    time_min: float
    time_median: float
    copies: int
    bytes_moved: int
    bytes_allocated: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class ModulePrice:
    """The price of one module (path; "" for what lies outside modules), stock and cured."""

    module: str
    stock: Measurement
    cured: Measurement


@dataclass(frozen=True, slots=True)
class Price:
    """The step run without and with the cures, interleaved `runs` times each.

    `exact` says whether results and gradients of both variants were bit-identical; None where
    this was not compared.
    """

    stock: Measurement
    cured: Measurement
    runs: int
    cures: tuple[str, ...] = ()
    modules: tuple[ModulePrice, ...] = ()
    exact: bool | None = None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted saving beside the measured one.

    `quantity` is e.g. ``copies`` or ``peak_bytes``, `unit` is ``""``, ``bytes`` or ``seconds``;
    `tolerance` is relative to the predicted value.
    """

    quantity: str
    predicted: float
    measured: float
    unit: Literal["", "bytes", "seconds"] = ""
    tolerance: float = 0.1
    module: str = ""

    @property
    def borne_out(self) -> bool:
        """Whether the measurement lies within the tolerance of the prediction."""
        return abs(self.measured - self.predicted) <= self.tolerance * abs(self.predicted)


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Live bytes over one step: points (seconds from the step's start, bytes)."""

    before: tuple[tuple[float, int], ...] = ()
    after: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OpaqueRegion:
    """Something that ran and could not be looked into, e.g. code from torch.compile."""

    what: str
    file: str = ""
    line: int = 0
    module: str = ""
    calls: int = 1


SliceKind = Literal["step", "module", "in_place", "copy", "backward"]


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of the timeline: `start` and `duration` in seconds from the recording's start.

    `cause` is the index, within the timeline, of the in-place line that a copy is owed to.
    """

    name: str
    kind: SliceKind
    start: float
    duration: float
    thread: int = 0
    bytes: int = 0
    file: str = ""
    line: int = 0
    module: str = ""
    code: str = ""
    cause: int | None = None


@dataclass(frozen=True, slots=True)
class Rank:
    """The process that a report comes from, in a distributed run."""

    rank: int
    world_size: int
    host: str = ""


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank's share of a merged report."""

    rank: Rank
    findings: int
    steps: Steps
    stock: Measurement | None = None
    cured: Measurement | None = None


@dataclass(slots=True)
class Report:
    """What an audit found and measured; filled when the audit ends.

    `notes` are sentences about the recording itself: the program raised, never called backward,
    was forked. `suppressed` counts the findings that a baseline left out.
    """

    findings: tuple[Finding, ...] = ()
    steps: Steps = field(default_factory=Steps)
    price: Price | None = None
    predictions: tuple[Prediction, ...] = ()
    memory: MemoryCurve | None = None
    timeline: tuple[Slice, ...] = ()
    opaque: tuple[OpaqueRegion, ...] = ()
    environment: Environment = field(default_factory=Environment)
    rank: Rank | None = None
    ranks: tuple[RankSummary, ...] = ()
    argv: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    suppressed: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def copies(self) -> int:
        """Predicted copies per step of all findings together."""
        return sum(finding.copies for finding in self.findings)

    @property
    def bytes_moved(self) -> int:
        """Predicted bytes per step that those copies move."""
        return sum(finding.bytes_moved for finding in self.findings)

    def to_json(self) -> Json:
        """The report as JSON values; see docs/audit-json.md."""
        return encode(self)

    @classmethod
    def from_json(cls, value: Json) -> Report:
        """Read a report back.

        Raises:
            FormatError: not a report, a newer schema, or a wrong value; names the place.
        """
        if not isinstance(value, dict):
            raise FormatError("a report must be a JSON object")
        version = value.get("schema_version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise FormatError("the report lacks a schema_version; was noalias audit the writer?")
        if version > SCHEMA_VERSION:
            raise FormatError(
                f"the report has schema_version {version}, this noalias reads up to "
                f"{SCHEMA_VERSION}; read it with the noalias that wrote it, or a newer one"
            )
        return decode(cls, value, "report")
