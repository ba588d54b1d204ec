"""The versions and the machine that a report belongs to, and the rank in a distributed run."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from datetime import datetime, timezone

import torch

import noalias
from noalias.audit.result import Environment, Rank


def environment() -> Environment:
    """This process's, now."""
    accelerator = torch.accelerator.is_available()
    device = str(torch.accelerator.current_accelerator()) if accelerator else "cpu"
    if device == "cuda":
        device = torch.cuda.get_device_name()
    return Environment(
        torch.__version__,
        noalias.__version__,
        platform.python_version(),
        device,
        torch.get_num_threads(),
        datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def rank(variables: Mapping[str, str] | None = None) -> Rank | None:
    """This process's rank, from the variables that ``torchrun`` sets; None outside of it."""
    given = os.environ if variables is None else variables
    try:
        number, size = int(given["RANK"]), int(given["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return Rank(number, size, socket.gethostname()) if 0 <= number < size else None
