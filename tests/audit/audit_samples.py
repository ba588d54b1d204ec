"""Reports to render in tests: one like a real segmentation run, one made to break a renderer."""

from __future__ import annotations

import math
from dataclasses import replace

from noalias.audit.finding import Excerpt, Finding, Graph, GraphExcerpt, GraphNode, Origin
from noalias.audit.result import (
    Environment,
    Measurement,
    MemoryCurve,
    ModulePrice,
    OpaqueRegion,
    Prediction,
    Price,
    Rank,
    Report,
    Slice,
    Steps,
)

MIB = 2**20


def chain(*nodes: tuple[str, str]) -> Graph:
    """A graph in which each node's gradient flows to the next; nodes are (name, kind)."""
    made = tuple(
        GraphNode(str(i), name, kind)  # type: ignore[arg-type]
        for i, (name, kind) in enumerate(nodes)
    )
    return Graph(made, tuple((str(i), str(i + 1)) for i in range(len(nodes) - 1)))


HIDDEN = Finding(
    code="NA101",
    file="/home/ada/seg/blocks.py",
    line=41,
    module="encoder.stages.0.blocks.0.act",
    operator="aten::leaky_relu_",
    shape=(2, 32, 48, 48, 48),
    dtype="torch.float32",
    bytes=27 * MIB,
    count=1,
    verdict="hidden",
    observers=(),
    copies=4,
    extra_peak_bytes=54 * MIB,
    cure="call `noalias.enable()`",
    source="return F.leaky_relu(self.norm(x), 0.01, inplace=True)",
    made_by=Origin(
        "aten::instance_norm", "/home/ada/seg/blocks.py", 40, "x = self.norm(self.conv(x))"
    ),
    message="leaky_relu_ writes to a view that instance_norm made of a temporary.",
    excerpt=Excerpt(
        38,
        (
            "    def forward(self, x):",
            "        # norm returns a view of a reshaped temporary",
            "        x = self.norm(self.conv(x))",
            "        return F.leaky_relu(self.norm(x), 0.01, inplace=True)",
        ),
    ),
    graph=GraphExcerpt(
        Graph(
            (
                GraphNode("a", "AsStridedBackward0", "copy"),
                GraphNode("b", "torch::autograd::CopySlices", "copy"),
                GraphNode("c", "LeakyReluBackward1"),
                GraphNode("d", "NativeBatchNormBackward0"),
                GraphNode("e", "ViewBackward0", "view"),
                GraphNode("f", "ConvolutionBackward0"),
                GraphNode("w", "weight", "leaf"),
                GraphNode("z", "…", "cut"),
            ),
            (
                ("a", "b"), ("b", "c"), ("b", "d"), ("d", "e"), ("e", "f"),
                ("d", "w"), ("f", "z"),
            ),
        ),
        chain(
            ("LeakyReluBackward1", "op"),
            ("ViewBackward0", "view"),
            ("NativeBatchNormBackward0", "op"),
            ("ViewBackward0", "view"),
            ("ConvolutionBackward0", "op"),
            ("…", "cut"),
        ),
    ),
)  # fmt: skip

OBSERVABLE = replace(
    HIDDEN,
    code="NA102",
    line=88,
    file="/home/ada/seg/heads.py",
    module="head",
    operator="aten::div_",
    shape=(2, 511, 32000),
    bytes=125 * MIB,
    verdict="observable",
    observers=(
        "the name `logits` in train_step still holds the base",
        "LogSoftmaxBackward0 saved it for backward",
    ),
    cure="write `shifted = logits[:, :-1] / temperature`",
    source="logits[:, :-1].div_(temperature)",
    made_by=Origin("aten::slice", "/home/ada/seg/heads.py", 88),
    message="div_ writes to a slice of logits, which train_step still names.",
    excerpt=None,
    graph=None,
    extra_peak_bytes=250 * MIB,
)

FILL = replace(
    HIDDEN,
    code="NA201",
    file="/home/ada/seg/decoder.py",
    line=19,
    module="decoder",
    operator="aten::copy_",
    shape=(4, 16),
    bytes=64 * 4 * 16 * 4,
    count=64,
    copies=128,
    extra_peak_bytes=64 * 4 * 16 * 4,
    verdict="observable",
    observers=("the name `outputs` in Decoder.forward holds the base",),
    source="outputs[t] = h",
    made_by=Origin("aten::select", "/home/ada/seg/decoder.py", 19),
    message="64 slice updates of one tensor: each clones the whole gradient.",
    excerpt=None,
    graph=None,
)

OVERWRITTEN = replace(
    HIDDEN,
    code="NA303",
    file="/home/ada/seg/loss.py",
    line=7,
    module="",
    operator="aten::mul_",
    shape=(4,),
    bytes=16,
    copies=0,
    extra_peak_bytes=0,
    verdict="observable",
    observers=("ExpBackward0 saved it for backward",),
    cure="write `weights = weights * 10`",
    source="weights.mul_(10)",
    made_by=None,
    saved_by=Origin("ExpBackward0", "/home/ada/seg/loss.py", 5, "weights = scores.exp()"),
    versions=(0, 1),
    message="mul_ overwrote the result that exp had saved for its backward.",
    excerpt=None,
    graph=None,
)

DROPPED = replace(
    HIDDEN,
    code="NA301",
    line=52,
    module="encoder.stages.1",
    operator="aten::add_",
    source="out += residual",
    made_by=Origin("aten::view", "/home/ada/seg/blocks.py", 51, "out = self.proj(x)"),
    hook=Origin(
        "Tensor.register_hook", "/home/ada/seg/probe.py", 12, "out.register_hook(self.keep)"
    ),
    message="the hook set on the view never runs: add_ rewrote its history.",
    excerpt=None,
    graph=None,
)

STOCK = Measurement(33.3e-3, 34.9e-3, 9, 243 * MIB, 189 * MIB, 412 * MIB)
CURED = Measurement(17.0e-3, 17.6e-3, 1, 27 * MIB, 108 * MIB, 331 * MIB)


def price() -> Price:
    """A measured price with three modules, one of which gains nothing."""
    return Price(
        STOCK,
        CURED,
        runs=15,
        cures=("hidden_base", "slice_update", "sibling_views", "owned_gradient"),
        modules=(
            ModulePrice(
                "encoder.stages.0.blocks.0",
                Measurement(14e-3, 14.4e-3, 5, 135 * MIB, 81 * MIB, 300 * MIB),
                Measurement(8e-3, 8.1e-3, 1, 27 * MIB, 54 * MIB, 246 * MIB),
            ),
            ModulePrice(
                "decoder",
                Measurement(9e-3, 9.1e-3, 4, 108 * MIB, 54 * MIB, 280 * MIB),
                Measurement(4e-3, 4.3e-3, 0, 0, 27 * MIB, 253 * MIB),
            ),
            ModulePrice(
                "",
                Measurement(2e-3, 2.1e-3, 0, 0, 1 * MIB, 20 * MIB),
                Measurement(2e-3, 2.1e-3, 0, 0, 1 * MIB, 20 * MIB),
            ),
        ),
        exact=True,
    )


def curve(scale: float, points: int = 120) -> tuple[tuple[float, int], ...]:
    """Memory that rises through forward, peaks early in backward and falls."""
    made = []
    for i in range(points):
        t = i / (points - 1)
        level = math.sin(min(t * 1.35, 1.0) * math.pi / 2) if t < 0.55 else max(0.0, 1.8 - 1.8 * t)
        bump = 0.35 * math.exp(-(((t - 0.55) / 0.05) ** 2))
        ripple = 0.05 * (i % 3)
        made.append((t * 0.0333, int((120 + 220 * (level + (bump + ripple) * scale)) * MIB)))
    return tuple(made)


def full() -> Report:
    """A report with every part filled."""
    return Report(
        findings=(HIDDEN, OBSERVABLE, FILL, DROPPED, OVERWRITTEN),
        steps=Steps(3, 3, 1.9),
        price=price(),
        predictions=(
            Prediction("copies", 8, 8),
            Prediction("bytes_moved", 216 * MIB, 216 * MIB, "bytes"),
            Prediction("peak_bytes", 108 * MIB, 81 * MIB, "bytes"),
        ),
        memory=MemoryCurve(curve(1.0), curve(0.25)),
        timeline=(
            Slice("step 1", "step", 0.0, 0.033),
            Slice("encoder", "module", 0.001, 0.009, module="encoder"),
            Slice(
                "leaky_relu_", "in_place", 0.004, 0.0004, file=HIDDEN.file, line=41,
                module=HIDDEN.module, code="NA101",
            ),
            Slice("backward", "backward", 0.015, 0.016, thread=1),
            Slice("copy_", "copy", 0.018, 0.002, thread=1, bytes=27 * MIB, cause=2),
            Slice("copy_", "copy", 0.021, 0.002, thread=1, bytes=27 * MIB, cause=2),
        ),
        opaque=(OpaqueRegion("torch.compile region", "/home/ada/seg/augment.py", 14, "", 3),),
        environment=Environment("2.13.0", "0.1.0", "3.11.2", "cpu", 2, "2026-11-29T17:20:00+00:00"),
        argv=("train.py", "--epochs", "1", "--data", "tiny"),
        notes=("the program was stopped after 3 steps, as --steps asked",),
        suppressed=2,
    )  # fmt: skip


HOSTILE_TEXT = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>'\"&[red]bold[/red]\x1b]0;owned\x07"
    "\x1b[31m\x9b2J\u202etxt.exe\u200b\udcff\ud800\r\n\x00" + "A" * 5000
)


def hostile(text: str = HOSTILE_TEXT) -> Report:
    """A report in which every text is `text`."""
    origin = Origin(text, text, 3, text)
    finding = Finding(
        code="NA101",
        file=text,
        line=2,
        module=text,
        operator=text,
        shape=(1,),
        dtype=text,
        bytes=1,
        count=1,
        verdict="observable",
        observers=(text, text),
        copies=1,
        extra_peak_bytes=1,
        cure=text,
        source=text,
        made_by=origin,
        message=text,
        saved_by=origin,
        versions=(0, 1),
        hook=origin,
        excerpt=Excerpt(1, (text, text, text)),
        graph=GraphExcerpt(chain((text, "op"), (text, "copy")), chain((text, "op"))),
    )
    made_up = replace(finding, code=text[:40])
    return replace(
        full(),
        findings=(finding, made_up),
        price=replace(price(), cures=(text,), modules=(ModulePrice(text, STOCK, CURED),)),
        predictions=(Prediction(text, 1.0, 2.0, "", 0.1, text),),
        timeline=(Slice(text, "copy", 0.0, 1.0, 0, 1, text, 1, text, text, 0),),
        opaque=(OpaqueRegion(text, text, 1, text, 1),),
        environment=Environment(text, text, text, text, 1, text),
        rank=Rank(0, 1, text),
        argv=(text, text),
        notes=(text,),
    )
