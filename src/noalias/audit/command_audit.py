"""``noalias audit``: run somebody's unchanged program and report what it pays for aliases."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from noalias import program
from noalias.audit import baseline, codes
from noalias.audit.codec import FormatError
from noalias.audit.progress import Progress
from noalias.audit.report import FORMATS, output
from noalias.complaint import complain

if TYPE_CHECKING:
    from noalias.audit.result import Report

SUMMARY = """Run a program and report what its training step pays for aliases, where, and why.

  noalias audit train.py --lr 0.1
  noalias audit --format html -o report.html --steps 20 -m package.train
  torchrun --nproc-per-node 4 -m noalias audit -o report.html --format html train.py
  noalias audit --demo

The program runs unchanged. Some of its steps, from the third on, run with the cures to measure
what they gain; gradients are the same (--no-price leaves that out). Codes: docs/codes."""

_FINE, _FINDINGS, _FAILURE = 0, 1, 2
_DEMO_REPORT = "noalias-demo.html"
_FOR_FILES = ("html", "trace")  # pages of markup and numbers that nobody reads as they are


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to ``parser``."""
    parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write the report there, and not between what the program itself prints",
    )
    parser.add_argument("--select", metavar="CODES", default="", help="only these: NA1,NA303")
    parser.add_argument("--ignore", metavar="CODES", default="", help="all but these")
    parser.add_argument(
        "--steps",
        metavar="N",
        type=int,
        help="end the program after N optimizer steps (backward calls, without an optimizer)",
    )
    parser.add_argument("--baseline", metavar="FILE", help="report only what FILE does not know")
    parser.add_argument(
        "--write-baseline", metavar="FILE", help="write all findings to FILE, and exit with 0"
    )
    parser.add_argument(
        "--no-price", action="store_true", help="run no step with the cures, measure nothing"
    )
    parser.add_argument(
        "--demo", action="store_true", help="audit a bundled network with every kind of finding"
    )
    parser.add_argument(
        "--merge",
        metavar="FILE",
        nargs="+",
        help="run nothing: merge the JSON reports of ranks, or of all in a folder",
    )
    program.configure(parser)


class _Usage(Exception):
    """Nothing was run, for this reason."""


def run(args: argparse.Namespace) -> int:
    """Audit the program; 0 clean, 1 findings, 2 usage or the program failed."""
    try:
        known = _check(args)
        if args.merge:
            return _merge(args, known)
        target = _target(args)
        target.check()
    except OSError as error:
        complain(f"noalias audit: cannot read {error.filename}: {error.strerror}")
        return _FAILURE
    except (_Usage, program.ProgramNotFound, FormatError, ValueError) as error:
        complain(f"noalias audit: {error}")
        return _FAILURE
    return _audit(args, target, known)


def _check(args: argparse.Namespace) -> baseline.Baseline:
    codes.wanted(_list(args.select), _list(args.ignore))
    if args.steps is not None and args.steps < 1:
        raise _Usage(f"--steps is {args.steps}; it takes a number from 1")
    if args.format in _FOR_FILES and args.output is None and sys.stdout.isatty():
        # Said before the program runs, which may take hours.
        raise _Usage(f"--format {args.format} is not for a terminal; add -o FILE")
    for option, path in (("-o", args.output), ("--write-baseline", args.write_baseline)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise _Usage(f"{option} {path}: there is no such folder to write to")
    return baseline.read(args.baseline) if args.baseline else baseline.Baseline()


def _target(args: argparse.Namespace) -> program.Program:
    if not args.demo:
        return program.from_arguments(args)
    if args.script is not None or args.module is not None:
        raise _Usage("--demo has a program of its own; name no other")
    return program.Program(str(_demo()))


def _audit(args: argparse.Namespace, target: program.Program, known: baseline.Baseline) -> int:
    # Before PyTorch is loaded: its profiler would announce itself on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    from noalias.audit import ranks
    from noalias.audit.environment import rank
    from noalias.audit.in_program import InProgram
    from noalias.audit.record import fill
    from noalias.audit.recorder import Recorder
    from noalias.audit.result import Report

    this = rank()
    if this is not None and this.world_size > 1:
        ranks.forget(this.rank, args.output)
    progress = Progress()

    def step_done(steps: int) -> None:
        if comparison is not None:
            comparison.step_done(steps)
        progress.show(steps, len(recorder.seen))

    selected = _list(args.select) or (["NA"] if args.demo else [])
    recorder = Recorder(
        done=step_done,
        most_steps=args.steps,
        also_users=(str(_demo()),) if args.demo else (),
        views="NA401" in codes.wanted(selected, _list(args.ignore)),
    )
    with closing(recorder):
        comparison = None if args.no_price else InProgram(recorder)
        report = Report(argv=(target.target, *target.args))
        process = os.getpid()
        recorder.start()
        try:
            code = target.run()
        finally:
            progress.clear()
            if comparison is not None:
                comparison.end()
            recorder.stop()
        if os.getpid() != process:
            return code  # a child that the program forked, and that ran to its end
        fill(report, recorder)
        if comparison is not None:
            comparison.fill(report)
        report.notes = (*_ending(code, args, recorder.steps.steps), *report.notes)
        report.findings = codes.filter_findings(report.findings, selected, _list(args.ignore))
        failed = code != 0
        if report.rank is not None and report.rank.world_size > 1:
            return _FINE if _emit_ranks(args, report, known, failed=failed) else _FAILURE
        verdict = _emit(args, report, known)
        return _FAILURE if failed else verdict


def _ending(code: int, args: argparse.Namespace, steps: int) -> list[str]:
    if code == program.INTERRUPTED:
        return ["the program was interrupted; this is what was found until then"]
    if code != 0:
        return [f"the program failed (exit code {code}); this is what was found until then"]
    if args.steps is not None and steps >= args.steps:
        return [f"the program was stopped after {steps} steps, as --steps asked"]
    return []


def _emit(args: argparse.Namespace, report: Report, known: baseline.Baseline) -> int:
    """Write the report, and the baseline if one is wanted."""
    try:
        if args.write_baseline:
            baseline.write(args.write_baseline, report.findings)
        new, old = known.split(report.findings)
        report.findings, report.suppressed = new, len(old)
        output.emit(report, args.format, args.output)
        if args.demo and args.output is None and args.format == "text":
            output.emit(report, "html", _DEMO_REPORT)
            print(f"\nThe same as a page: {Path(_DEMO_REPORT).absolute()}")
    except OSError as error:
        complain(f"noalias audit: the report cannot be written: {error}")
        return _FAILURE
    if args.output is not None and sys.stderr.isatty():
        complain(f"noalias audit: the report is in {args.output}")
    return _FINDINGS if report.findings and not (args.demo or args.write_baseline) else _FINE


def _emit_ranks(
    args: argparse.Namespace, report: Report, known: baseline.Baseline, *, failed: bool
) -> bool:
    """Write this rank's report; rank 0 waits for the others' and writes the merged one.

    A rank on which the program failed waits for nobody: torchrun ends the others. Findings
    are no reason for a rank to exit with 1: torchrun would end the others for it.
    """
    from noalias.audit import ranks

    assert report.rank is not None, "called for ranks"
    try:
        path = ranks.write(report, args.output)
        if failed:
            complain(
                f"noalias audit: the program failed on rank {report.rank.rank}, so nothing is "
                f"merged; what was found there until then is in {path} "
                f"(show it: noalias audit --merge {path})"
            )
            return False
        if report.rank.rank == 0:
            merged = ranks.collect(report.rank.world_size, args.output)
            return _emit(args, merged, known) != _FAILURE
    except (FormatError, OSError, ValueError) as error:
        complain(f"noalias audit: rank {report.rank.rank}: {error}")
        return False
    return True


def _merge(args: argparse.Namespace, known: baseline.Baseline) -> int:
    from noalias.audit import ranks

    merged = ranks.read(args.merge)
    merged.findings = codes.filter_findings(merged.findings, _list(args.select), _list(args.ignore))
    return _emit(args, merged, known)


def _demo() -> Path:
    return Path(__file__).with_name("demo") / "train.py"


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
