"""Run somebody's unchanged program inside this process, as ``python`` would run it."""

from __future__ import annotations

import argparse
import builtins
import importlib.machinery
import importlib.util
import io
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType

import noalias

_OURS = str(Path(noalias.__file__).parent)
UNCAUGHT = 1  # what python exits with after a traceback
INTERRUPTED = 130  # 128 + SIGINT


class ProgramNotFound(Exception):
    """There is no such script or module; nothing has been run."""


@dataclass(frozen=True)
class Program:
    """A script or a module (``-m``) and its arguments.

    Attributes:
        target: path of a script, of a folder or archive with a ``__main__``, or a module's name.
        is_module: whether ``target`` is a module's name.
        args: what the program finds in ``sys.argv[1:]``.
    """

    target: str
    is_module: bool = False
    args: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Raise :class:`ProgramNotFound`, naming the target, where there is nothing to run."""
        if not self.is_module:
            if not Path(self.target).exists():
                raise ProgramNotFound(f"can't open {self.target!r}: no such file or directory")
            if Path(self.target).is_dir() and not (Path(self.target) / "__main__.py").is_file():
                raise ProgramNotFound(
                    f"{self.target!r} is a folder without a __main__.py; name the script in it"
                )
            return
        try:
            found = importlib.util.find_spec(self.target)
        except ModuleNotFoundError as error:
            raise ProgramNotFound(f"no module named {error.name!r}") from None
        if found is None:
            raise ProgramNotFound(f"no module named {self.target!r}")

    def run(self) -> int:
        """Run the program to its end in this process; it becomes ``__main__``.

        ``sys.argv``, ``sys.path[0]`` and ``__main__`` are those ``python`` would have set, and stay
        so: threads and ``atexit`` functions of the program may outlive it. An
        exception that the program does not catch is printed as ``python`` prints it, without
        noalias' own frames.

        Returns:
            The exit code: that of ``sys.exit``, 1 after an uncaught exception, 130 after Ctrl-C.
        """
        sys.argv = [self.target, *self.args]
        try:
            if self.is_module:
                sys.path.insert(0, str(Path.cwd()))
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            elif Path(self.target).is_file() and not _is_archive(self.target):
                sys.path.insert(0, str(Path(self.target).resolve().parent))
                _run_script(self.target)
            else:
                runpy.run_path(self.target, run_name="__main__")
        except SystemExit as error:
            return _exit_code(error)
        except BaseException as error:
            # Whatever the program raised is its own: python would print it and end.
            _print_uncaught(error)
            return INTERRUPTED if isinstance(error, KeyboardInterrupt) else UNCAUGHT
        return 0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add ``script args…`` and ``-m module args…`` to a command's parser."""
    parser.add_argument(
        "-m",
        dest="module",
        metavar="MODULE",
        nargs=argparse.REMAINDER,
        help="run a module, as python -m does; what follows is the program's",
    )
    parser.add_argument("script", nargs="?", help="the program to run, unchanged")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="the program's own arguments")


def from_arguments(args: argparse.Namespace) -> Program:
    """The program that a parser set up by :func:`configure` was given.

    Raises:
        ProgramNotFound: neither a script nor a module was named.
    """
    if args.module is not None:
        if not args.module:
            raise ProgramNotFound("-m needs the name of a module")
        return Program(args.module[0], is_module=True, args=args.module[1:])
    if args.script is None:
        raise ProgramNotFound("name a script to run, or a module with -m")
    return Program(args.script, args=args.args)


def _run_script(path: str) -> None:
    path = str(Path(path).absolute())
    with io.open_code(path) as file:
        source = file.read()
    main = ModuleType("__main__")
    main.__dict__.update(
        __file__=path,
        __builtins__=builtins,
        __loader__=importlib.machinery.SourceFileLoader("__main__", path),
        __cached__=None,
    )
    main.__package__ = None
    sys.modules["__main__"] = main
    exec(compile(source, path, "exec"), main.__dict__)


def _is_archive(path: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    print(error.code, file=sys.stderr)
    return 1


def _print_uncaught(error: BaseException) -> None:
    error.__traceback__ = _without_our_frames(error.__traceback__)
    sys.excepthook(type(error), error, error.__traceback__)


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_OURS):
        traceback = traceback.tb_next
    return traceback
