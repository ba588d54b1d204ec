"""A device that is not the CPU, on machines that have no other: ``torch.device("pretend")``.

Its memory is the host's and its operators are the CPU's (``pretend.cpp``); to autograd it is an
accelerator with streams. All work is done at once, so a missing wait changes no value: it is found
in what the operators read and wrote on which stream, and ``races()`` has it. PyTorch takes one such
device in a process and never gives it up, so a test that wants it runs a program of its own::

    output = pretend_device.run('''
        import torch
        x = torch.ones(3, device="pretend")
        print(x.sum().item())
    ''')

There, ``pretend_device.load()`` is the module of streams, races and counts.
"""

from __future__ import annotations

import importlib.util
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import torch

from noalias.native import cache as builds
from noalias.native import lock, toolchain, trust
from tests.ownership import training

NAME = "pretend"

_SOURCE = Path(__file__).with_name("pretend.cpp")
_HEADERS = sorted(_SOURCE.parent.glob("*.h"))
_MODULE = "noalias_pretend_device"


class Device(Protocol):
    """The functions of the compiled module."""

    def set_stream(self, id: int) -> None:
        """Make a stream this thread's current one. Numbers are free; 0 is the default stream."""

    def current_stream(self) -> int: ...

    def wait(self, waiting: int, other: int) -> None:
        """What one stream is given from now on starts after what the other one was given so far."""

    def races(self) -> list[str]:
        """What came in no order, one access of two to a line; see ``races.h``.

        A byte that one operator wrote, and another read or wrote on another stream, which nothing
        made wait for the first: neither an event, nor ``wait``, nor the host, which waits where it
        gets a number or a copy.
        """

    def forget_races(self) -> None:
        """Begin a new list, in which nothing that was done before has a part."""

    def waits(self) -> int:
        """How often PyTorch has told a stream to wait for an event, ever; ``wait`` is not in it."""

    def allocations(self) -> int:
        """How many have been made, ever."""

    def allocated(self) -> int:
        """Bytes."""

    def peak(self) -> int:
        """The most bytes since ``reset_peak``."""

    def reset_peak(self) -> None: ...


@cache
def load() -> Device:
    """Compile the device if need be, and register it in this process for good."""
    folder = _build_folder()
    # Against the lock that cpp_extension takes: that one outlives a process that is killed.
    with lock.exclusive(folder / "build.lock"):
        complete = folder / "complete"
        if complete.exists():
            module = _imported(folder / f"{_MODULE}.so")
        else:
            (folder / "lock").unlink(missing_ok=True)
            module = _compiled(folder)
            complete.touch()
    # PyTorch looks for `torch.pretend` whenever a program names the device.
    torch._register_device_module(NAME, module)
    return cast("Device", module)


@contextmanager
def on_stream(id: int) -> Iterator[None]:
    """Run what is inside on another stream: after what came before it, and before what follows."""
    device = load()
    before = device.current_stream()
    device.wait(id, before)
    device.set_stream(id)
    try:
        yield
    finally:
        device.wait(before, id)
        device.set_stream(before)


def run(program: str, timeout: float = 600) -> str:
    """Run a program in a fresh Python where the device is loaded.

    Returns:
        What it printed.

    Raises:
        AssertionError: it failed; the message is its stderr.
    """
    prelude = """
        from tests import pretend_device
        pretend_device.load()
    """
    # Not by way of Python's own exit: the engine's thread for the device may still be dropping
    # what belongs to a backward call, and whoever wants the interpreter lock by then is aborted.
    end = """
        import os, sys
        sys.stdout.flush()
        os._exit(0)
    """
    code = "\n".join(textwrap.dedent(part) for part in (prelude, program, end))
    done = training.run(code, timeout)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _build_folder() -> Path:
    """Named as a core is, so that ``noalias.native.cache.clean`` deletes it, too."""
    root = builds.root()
    folder = (
        root / builds.key({path.name: path.read_bytes() for path in (_SOURCE, *_HEADERS)}) / NAME
    )
    root.parent.mkdir(parents=True, exist_ok=True)
    for private in (root, folder.parent, folder):
        private.mkdir(mode=0o700, exist_ok=True)
    trust.check_root(root)
    return folder


def _compiled(folder: Path) -> ModuleType:
    # Imported only to build: it takes a second, and imports setuptools.
    from torch.utils import cpp_extension

    strict = ["-Werror"] if toolchain.strict() else []
    before = os.environ["PATH"]
    # cpp_extension looks for ninja there, and that of this environment may not be on it.
    os.environ["PATH"] = os.pathsep.join([str(toolchain.require_ninja().parent), before])
    try:
        module = cpp_extension.load(
            name=_MODULE,
            sources=[str(_SOURCE)],
            extra_cflags=["-O1", "-DNDEBUG", "-Wall", "-Wextra", *strict],
            build_directory=str(folder),
        )
    finally:
        os.environ["PATH"] = before
    assert isinstance(module, ModuleType)
    return module


def _imported(library: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
