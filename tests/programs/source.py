"""Programs as Python source: what is executed is what a person can paste into a bug report.

Whether a base is observable depends on Python references, so programs are not interpreted: they are
printed, compiled and executed as the body of one function, where names, temporaries and `del` hold
tensors exactly as in user code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from .operators import render_step
from .statements import (
    Alias,
    Backward,
    Block,
    Call,
    Delete,
    Deref,
    Export,
    Foreach,
    Hook,
    Leaf,
    Let,
    Loop,
    Module,
    Peek,
    Program,
    Stash,
    Statement,
    Step,
    Unpack,
    WeakRef,
    Write,
    binds,
    render,
    render_index,
    walk,
)

CONTEXTS = {
    "no_grad": "with torch.no_grad():",
    "enable_grad": "with torch.enable_grad():",
    "inference": "with torch.inference_mode():",
    "dual": "with fwAD.dual_level():",
    "saved_same": "with torch.autograd.graph.saved_tensors_hooks(pack_same, unpack_same):",
    "saved_clone": "with torch.autograd.graph.saved_tensors_hooks(pack_clone, unpack_same):",
    "save_on_cpu": "with torch.autograd.graph.save_on_cpu():",
    "allow_mutation": "with torch.autograd.graph.allow_mutation_on_saved_tensors():",
    "anomaly": "with torch.autograd.detect_anomaly(check_nan=False):",
    "guard": "try:",
}

FORMS = {
    "self": "{0}",
    "sum": "{0}.sum()",
    "square": "{0}.square().sum()",
    "cos": "{0}.cos().sum()",
    "abs": "{0}.abs().sum()",
    "mul": "({0} * {1}).sum()",
    "view_as_real": "torch.view_as_real({0}).square().sum()",
}

_CHECKPOINT = "{outs} = torch.utils.checkpoint.checkpoint({f}, {args}, use_reentrant="

TRANSFORMS = {
    "plain": "{outs} = {f}({args})",
    "thread": "{outs} = in_thread(lambda: {f}({args}))",
    "grad": "{outs} = torch.func.grad({f})({args})",
    "grad_and_value": "{outs} = torch.func.grad_and_value({f})({args})",
    "vjp": "{outs} = pull_back_ones(*torch.func.vjp({f}, {args}))",
    "jvp": "{outs} = torch.func.jvp({f}, ({args},), tuple(map(torch.ones_like, ({args},))))",
    "vmap": "{outs} = torch.func.vmap({f})({args})",
    "vmap_grad": "{outs} = torch.func.vmap(torch.func.grad({f}))({args})",
    "jacrev": "{outs} = torch.func.jacrev({f})({args})",
    "jacfwd": "{outs} = torch.func.jacfwd({f})({args})",
    "functionalize": "{outs} = torch.func.functionalize({f})({args})",
    "checkpoint": f"{_CHECKPOINT}False)",
    "checkpoint_reentrant": f"{_CHECKPOINT}True)",
}

MODULES = {
    "linear": "nn.Linear({0}, {1})",
    "linear_relu": "nn.Sequential(nn.Linear({0}, {1}), nn.ReLU(inplace=True))",
    "linear_dropout": "nn.Sequential(nn.Linear({0}, {1}), nn.Dropout(0.5, inplace=True))",
    "norm_leaky": (
        "nn.Sequential(nn.InstanceNorm1d({0}, affine=True), nn.LeakyReLU(0.1, inplace=True))"
    ),
}

# What a program may name, in the order a reader wants to see it.
PREAMBLE = """\
import weakref

import torch
import torch.autograd.forward_ad as fwAD
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
"""


# A statement's site, and which of the tensors it binds (or is about to write to) is meant; one more
# for the tangents that a forward transform hands to its function.
Place: TypeAlias = "tuple[int, int]"


# Site, type and message of an error, and how many times it is raised there.
Refused: TypeAlias = "tuple[tuple[int, str, str, int], ...]"


@dataclass(frozen=True)
class Reference:
    """How a reference run departs from the program (see `oracle`).

    Results at places in ``unaliased`` get a storage of their own; guarded statements at sites in
    ``refused`` are not executed the first ``times`` they are reached, and record (type, message) of
    an error instead. ``halfway``: of a refused ``x[i] += v`` all but the last step, ``x[i] = ...``,
    is executed. ``recorded``: results are replaced and statements left out only while history is
    recorded, so in a reentrant checkpoint only when it is run again. ``exact_tangents``: see
    `support`. ``put_back``: what was replaced for a guarded write that then raises is again the
    view that it was. ``same_memory``: a result keeps its memory and loses its base alone, as others
    may see that memory through dlpack.
    """

    unaliased: frozenset[Place] = frozenset()
    refused: Refused = ()
    halfway: bool = False
    recorded: bool = False
    exact_tangents: bool = False
    put_back: bool = False
    same_memory: bool = False


class Printer:
    """Prints statements."""

    def __init__(self, reference: Reference | None = None) -> None:
        self._unaliased = reference.unaliased if reference else frozenset[Place]()
        self._refused = {site: error for site, *error in (reference.refused if reference else ())}
        self._halfway = reference.halfway if reference else False
        self._put_back = reference.put_back if reference else False
        self._recorded = reference.recorded if reference else False
        self._option = ", recorded=True" if self._recorded else ""
        self._option += ", same_memory=True" if reference and reference.same_memory else ""
        self._site = -1
        self._others: dict[str, frozenset[str]] = {}

    def lines(self, program: Program) -> Iterator[str]:
        for statement in program:
            self._site += 1
            yield from self._statement(statement, self._site)
            self._note_names(statement)

    def _note_names(self, statement: Statement) -> None:
        """Which names are other names of one tensor: `b = c`, until one is bound anew."""
        gone = binds(statement) | ({statement.name} if isinstance(statement, Delete) else set())
        for name in gone:
            for other in self._others.pop(name, frozenset()):
                self._others[other] -= {name}
        if isinstance(statement, Alias) and statement.out != statement.source:
            same = self._others.get(statement.source, frozenset()) | {statement.source}
            self._others[statement.out] = same
            for name in same:
                self._others[name] = self._others.get(name, frozenset()) | {statement.out}

    def _statement(self, statement: Statement, site: int) -> Iterator[str]:
        match statement:
            case Leaf(out, shape, dtype, requires_grad, fill):
                flag = ", requires_grad=True" if requires_grad else ""
                yield f"{render(out)} = torch.{fill}({render(shape)}, dtype=torch.{dtype}{flag})"
            case Let(out, source, chain):
                yield f"{render(out)} = {self._fresh(site, render_chain(source, chain))}"
            case Unpack(outs, source, chain):
                parts = render_chain(source, chain)
                yield f"{_targets(outs)}{',' if len(outs) == 1 else ''} = {parts}"
                yield from self._fresh_names(site, outs)
            case Write(target, chain, step, thread):
                yield from self._fresh_names(site, (target,))
                if (site, 0) in self._unaliased:
                    for other in sorted(self._others.get(target, ())):
                        yield f"{render(other)} = {render(target)}"
                text = render_step(step, render_chain(target, chain))
                yield f"in_thread(lambda: {text})" if thread else text
            case Foreach(targets, step):
                yield from self._fresh_names(site, targets)
                yield render_step(step, f"[{', '.join(map(render, targets))}]")
            case Alias(out, source):
                yield f"{render(out)} = {render(source)}"
            case Delete(name):
                yield f"del {render(name)}"
            case Stash(source):
                yield f"stash.append({render(source)})"
            case WeakRef(out, source):
                yield f"{render(out)} = weakref.ref({render(source)})"
            case Deref(out, source):
                yield f"{render(out)} = {render(source)}()"
            case Export(out, source, way):
                yield f"{render(out)} = {_export(way, render(source))}"
            case Hook(target, way):
                # Stock PyTorch (2.9 to 2.15) crashes in `register_hook` on a view that an in-place
                # operator on another view of its base has left stale; reading `grad_fn` brings it
                # up to date.
                yield f"{render(target)}.grad_fn"
                place = f"({site}, 0){self._option}" if (site, 0) in self._unaliased else ""
                yield _hook(way, render(target), f"{render(target)}@{site}", place)
            case Peek(source):
                yield f'record("{render(source)}@{site}", {render(source)})'
            case Module(out, way, sizes, hooked):
                yield f"{render(out)} = {MODULES[way].format(*sizes)}"
                if (site, 0) in self._unaliased and way != "linear":
                    yield f"{render(out)}.insert(1, Unaliased(({site}, 0){self._option}))"
                if hooked:
                    part = render(out) if way == "linear" else f"{render(out)}[0]"
                    hook = f'record.module_hook("{render(out)}@{site}")'
                    yield f"{part}.register_full_backward_hook({hook})"
            case Backward():
                yield _backward(statement)
                yield from self._fresh_gradients(site, statement.outs)
            case Block("guard", body) if site in self._refused:
                error = ", ".join(map(repr, self._refused[site]))
                now = "torch.is_grad_enabled() and " if self._recorded else ""
                yield f'if {now}record.refuse("@{site}", {error}):'
                half = _first_half(body[0]) if self._halfway else ""
                yield f"    {half or _drawn(body[0]) or 'pass'}"
                yield "else:"
                yield from (f"    {line}" for line in self._guarded(site, body))
            case Block("guard", body):
                yield from self._guarded(site, body)
            case Block(context, body):
                yield CONTEXTS[context]
                yield from self._indented(body)
            case Loop(steps, body):
                yield f"for t in range({steps}):"
                yield from self._indented(body)
            case Call(outs, transform, arguments, parameters, body, result):
                yield f"def f{site}({', '.join(map(render, parameters))}):"
                tangents = site, len(outs)
                if tangents in self._unaliased:
                    yield from (
                        f"    {render(name)} = own_tangent({render(name)}, {tangents})"
                        for name in parameters
                    )
                yield from self._indented(body)
                yield f"    return {render_form(result)}"
                yield TRANSFORMS[transform].format(
                    outs=_targets(outs), f=f"f{site}", args=", ".join(map(render, arguments))
                )
                yield from self._fresh_names(site, outs)

    def _guarded(self, site: int, body: Program) -> Iterator[str]:
        replaced = self._replaced_by(site + 1, body[0]) if self._put_back else ""
        if replaced:
            yield f"before = {replaced}"
        yield "try:"
        yield from self._indented(body)
        yield "except Exception as error:"
        if replaced:
            yield f"    {replaced} = put_back(before, {replaced})"
        yield f'    record.error("@{site}", error)'
        if replaced:
            yield "del before"

    def _replaced_by(self, site: int, statement: Statement) -> str:
        """A tuple of the names that a reference binds anew just before this writes to them."""
        match statement:
            case Write(target):
                names = (target, *sorted(self._others.get(target, ())))
                return _tuple(names) if (site, 0) in self._unaliased else ""
            case Foreach(targets):
                parts = range(len(targets))
                return _tuple(targets) if any((site, i) in self._unaliased for i in parts) else ""
        return ""

    def _indented(self, body: Program) -> Iterator[str]:
        yield from (f"    {line}" for line in self.lines(body))

    def _fresh_names(self, site: int, names: tuple[str, ...]) -> Iterator[str]:
        for part, name in enumerate(names):
            if (site, part) in self._unaliased:
                yield f"{render(name)} = {self._copy((site, part), render(name))}"

    def _fresh_gradients(self, site: int, names: tuple[str, ...]) -> Iterator[str]:
        parts = tuple(part for part in range(len(names)) if (site, part) in self._unaliased)
        if len(names) == 1:
            yield from self._fresh_names(site, names)
        elif parts:
            targets = _targets(names)
            yield f"{targets} = unaliased_among(({targets}), {site}, {parts}{self._option})"

    def _fresh(self, site: int, text: str) -> str:
        return self._copy((site, 0), text) if (site, 0) in self._unaliased else text

    def _copy(self, place: Place, text: str) -> str:
        return f"unaliased({text}, {place}{self._option})"


def _first_half(statement: Statement) -> str:
    """Of ``x[i] += v`` what Python does before ``x[i] = ...``."""
    if isinstance(statement, Write) and statement.step[0] == "index_add_set":
        _, index, value = statement.step
        target = render_chain(statement.target, statement.chain)
        return f"{target}[{render_index(index)}].__iadd__({render(value)})"
    return ""


def _drawn(statement: Statement) -> str:
    """The random numbers that a write draws before it raises: the next ones are others."""
    if isinstance(statement, Write) and statement.step[0] == "dropout_":
        target = render_chain(statement.target, statement.chain)
        return f"torch.empty_like({target}.detach()).bernoulli_()"
    return ""


def render_chain(source: str, chain: tuple[Step, ...]) -> str:
    """``source`` with the steps applied, as one expression."""
    text = render(source)
    for step in chain:
        text = render_step(step, text)
    return text


def render_form(term: Step) -> str:
    """A scalar (or with ``self`` the tensor itself) made of a variable."""
    return FORMS[str(term[0])].format(*map(render, term[1:]))


def _targets(names: tuple[str, ...]) -> str:
    return ", ".join(map(render, names))


def _tuple(names: tuple[str, ...]) -> str:
    return f"({', '.join(map(render, names))},)"


def _export(way: str, source: str) -> str:
    return {
        "numpy": f"{source}.detach().numpy()",
        "dlpack": f"torch.from_dlpack({source}.detach())",
        "storage": f"{source}.untyped_storage()",
    }[way]


def _hook(way: str, target: str, label: str, place: str = "") -> str:
    kept = f", lambda grad: unaliased(grad, {place})" if place else ""
    accumulated = f'record.accumulated("{label}")'
    return {
        "log": f'{target}.register_hook(record.hook("{label}"))',
        "scale": f'{target}.register_hook(record.hook("{label}", scale=2.0))',
        "keep": f'{target}.register_hook(record.keep("{label}"{kept}))',
        "retain_grad": f"{target}.retain_grad()",
        "post_accumulate": f"{target}.register_post_accumulate_grad_hook({accumulated})",
        "node": f'{target}.grad_fn.register_hook(record.node_hook("{label}"))',
        "node_pre": f'{target}.grad_fn.register_prehook(record.node_hook("{label}"))',
    }[way]


def _backward(statement: Backward) -> str:
    loss = " + ".join(map(render_form, statement.terms))
    options = "".join(
        f", {name}=True" for name in ("retain_graph", "create_graph") if getattr(statement, name)
    )
    if statement.inputs:
        inputs = ", ".join(map(render, statement.inputs))
        seed = f", {render(statement.gradient)}" if statement.gradient else ""
        text = f"torch.autograd.grad({loss}, [{inputs}]{seed}{options}, allow_unused=True)"
    else:
        seed = render(statement.gradient) if statement.gradient else ""
        text = f"({loss}).backward({(seed + options).removeprefix(', ')})"
    if statement.thread:
        text = f"in_thread(lambda: {text})"
    if statement.inputs:
        text = f"{', '.join(map(render, statement.outs))}, = {text}"
    return text


def live_names(program: Program) -> list[str]:
    """Names surely bound at the end, in the order of binding."""
    live: dict[str, None] = {}
    for statement in program:
        if isinstance(statement, Block | Loop) and getattr(statement, "context", "") != "guard":
            live.update(dict.fromkeys(live_names(statement.body)))
            for inner in statement.body:
                if isinstance(inner, Delete):
                    live.pop(inner.name, None)
        elif isinstance(statement, Delete):
            live.pop(statement.name, None)
        elif not isinstance(statement, Block):
            live.update(dict.fromkeys(sorted(binds(statement))))
    return list(live)


def function_source(program: Program, reference: Reference | None = None) -> str:
    """``def program(record)``, ending in records of everything still alive."""
    lines = ["torch.default_generator.manual_seed(0)"]
    if any(isinstance(statement, Stash) for statement in walk(program)):
        lines.append("stash = []")
    lines += Printer(reference).lines(program)
    lines += [f'record("{render(name)}", {render(name)})' for name in live_names(program)]
    if "stash = []" in lines:
        lines.append('record("stash", stash)')
    return "def program(record):\n" + "".join(f"    {line}\n" for line in lines)
