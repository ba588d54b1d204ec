"""What a measurement ran on: processor, threads, device, versions."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

import noalias


@dataclass(frozen=True)
class Machine:
    """Everything a reader needs to judge whether a number applies to them.

    Attributes:
        cores: that this process may use.
        threads: PyTorch's intra-op count, which `--threads` sets.
        load: the operating system's average over the last minute of runnable processes, this one
            included; more than `cores` means that others took part of the machine meanwhile.
    """

    processor: str
    cores: int
    threads: int
    load: float | None
    device: str
    system: str
    python: str
    torch: str
    cuda: str | None
    noalias: str


def describe(device: torch.device) -> Machine:
    """The machine as it is now: call it when the measurement is done."""
    return Machine(
        processor=_processor(),
        cores=_usable_cores(),
        threads=torch.get_num_threads(),
        load=round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        device=_device_name(device),
        system=platform.platform(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda if device.type == "cuda" else None,
        noalias=noalias.__version__,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} ({device})"
    return str(device)


def _usable_cores() -> int:
    # Containers and batch systems hand out fewer cores than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
