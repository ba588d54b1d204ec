"""What is installed here, what state the core is in, and what is wrong."""

from __future__ import annotations

import os
import platform
import sysconfig
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import noalias
from noalias.native import build, cache, loader, toolchain, trust
from noalias.native.errors import NativeUnavailable

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """Something that keeps the core from working, and what to do about it."""

    what: str
    fix: str


@dataclass
class Report:
    """Facts by section, as shown and as written to JSON; and the problems."""

    sections: dict[str, dict[str, str]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def note(self, error: NativeUnavailable) -> str:
        """Record a problem; returns its text for the section where it was met."""
        reason = error.reason.partition("\n")[0].rstrip(":")
        problem = Problem(reason, error.fix + (f" (log: {error.log})" if error.log else ""))
        if problem not in self.problems:
            self.problems.append(problem)
        return reason


def examine() -> Report:
    """Look at everything the core depends on. Compiles nothing; loads the core if it is built."""
    report = Report()
    report.sections["noalias"] = {
        "version": noalias.__version__,
        "python": f"{platform.python_version()} ({sysconfig.get_config_var('SOABI')})",
        "platform": platform.platform(),
    }
    report.sections["torch"] = _torch()
    report.sections["devices"] = _devices()
    entry = _find(report)
    report.sections["build"] = _toolchain(report, needed=entry is None)
    report.sections["cache"] = _cache(report, needed=entry is None)
    report.sections["core"] = _core(report, entry)
    return report


def _torch() -> dict[str, str]:
    import torch

    return {
        "version": torch.__version__,
        "commit": torch.version.git_version,
        "C++ ABI": f"_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        "C++ standard": toolchain.cxx_standard(),
    }


def _devices() -> dict[str, str]:
    import torch

    found = {"cpu": f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            memory = properties.total_memory / 2**30
            found[f"cuda:{index}"] = f"{properties.name}, {memory:.0f} GiB"
    if torch.backends.mps.is_available():
        found["mps"] = "available"
    return found


def _find(report: Report) -> cache.Entry | None:
    try:
        return build.find()
    except NativeUnavailable as error:
        report.note(error)
        return None


def _toolchain(report: Report, *, needed: bool) -> dict[str, str]:
    """Compiler, ninja and headers. Missing ones are problems only where a build is needed."""
    facts = {}
    problems = report if needed else Report()
    try:
        compiler = toolchain.require_compiler()
        facts["compiler"] = f"{compiler.version()} ({compiler.command[0]})"
    except NativeUnavailable as error:
        facts["compiler"] = problems.note(error)
    try:
        facts["ninja"] = str(toolchain.require_ninja())
    except NativeUnavailable as error:
        facts["ninja"] = problems.note(error)
    try:
        facts["headers"] = str(toolchain.include_paths()[0])
    except NativeUnavailable as error:
        facts["headers"] = problems.note(error)
    facts["jobs"] = str(toolchain.jobs())
    return facts


def _cache(report: Report, *, needed: bool) -> dict[str, str]:
    place = cache.root()
    facts = {"folder": str(place), "state": _place_state(report, place, needed=needed)}
    for path in cache.prebuilt():
        if path.is_dir():
            facts["prebuilt"] = f"{path} ({cache.size(path) / 2**20:.1f} MiB)"
        else:
            missing = f"NOALIAS_PREBUILT names {path}, which is no folder"
            report.problems.append(Problem(missing, f"noalias build -o {path}, or unset it"))
    return facts


def _place_state(report: Report, place: Path, *, needed: bool) -> str:
    if place.is_dir():
        try:
            trust.check_root(place)
        except NativeUnavailable as error:
            return report.note(error)
        size = f"{cache.size(place) / 2**20:.1f} MiB"
        existing = place
    else:
        size = "not there yet"
        existing = next(path for path in place.parents if path.exists())
    if existing.is_dir() and os.access(existing, os.W_OK | os.X_OK):
        return f"{size}, writable"
    if needed:
        fix = "set NOALIAS_CACHE to a folder you can write"
        report.problems.append(Problem(f"the cache folder {place} cannot be written", fix))
    return f"{size}, read-only"


def _core(report: Report, entry: cache.Entry | None) -> dict[str, str]:
    if entry is None:
        if not report.problems and any(
            cache.entries(cache.root(), cache.key(toolchain.sources()), None)
        ):
            broken = Problem("the cached core is damaged or of another compiler", "noalias build")
            report.problems.append(broken)
        return {"state": "not built; compiled on first use, or now by `noalias build`"}
    facts = {
        "library": str(entry.library),
        "built": f"{entry.built} in {entry.seconds:.1f} s by {entry.compiler}",
        "size": f"{entry.size / 2**20:.1f} MiB",
    }
    try:
        core = loader.load()
    except NativeUnavailable as error:
        return {"state": report.note(error), **facts}
    active = core.active_cures() if hasattr(core, "active_cures") else []
    return {"state": "loads", **facts, "active cures": ", ".join(active) or "none"}
