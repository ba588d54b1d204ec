"""Run a function on several ranks of this machine: gloo, loopback, one process for each rank."""

from __future__ import annotations

import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, spawn

T = TypeVar("T")

TIMEOUT = timedelta(seconds=120)


class RankFailed(RuntimeError):
    """A rank raised or died; the message holds every rank's traceback."""


def on_ranks(function: Callable[[], T], ranks: int = 4) -> list[T]:
    """Call ``function`` once on each rank of a new process group.

    Args:
        function: importable by name, without arguments; what it returns is pickled.
        ranks: processes to start, one thread each.

    Returns:
        What each rank returned, in the order of the ranks.

    Raises:
        RankFailed: a rank raised, or ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="noalias-ranks-") as folder:
        place = Path(folder)
        context = spawn(_enter, (function, ranks, place), nprocs=ranks, join=False)
        try:
            while not context.join(timeout=1.0):
                pass
        except (ProcessRaisedException, ProcessExitedException) as error:
            raise RankFailed("\n".join([str(error), *_problems(place, ranks)])) from error
        return [pickle.loads((place / f"{rank}.answer").read_bytes()) for rank in range(ranks)]


def _problems(place: Path, ranks: int) -> list[str]:
    files = [place / f"{rank}.problem" for rank in range(ranks)]
    return [f"{file.name}: {file.read_text(encoding='utf-8')}" for file in files if file.exists()]


def _enter(rank: int, function: Callable[[], object], ranks: int, place: Path) -> None:
    # The loopback interface has a name of its own on each system; gloo looks it up by address.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{place / 'store'}",
        rank=rank,
        world_size=ranks,
        timeout=TIMEOUT,
    )
    try:
        answer = function()
        (place / f"{rank}.answer").write_bytes(pickle.dumps(answer))
        dist.barrier()
    except BaseException:
        (place / f"{rank}.problem").write_text(traceback.format_exc(), encoding="utf-8")
        raise
    finally:
        dist.destroy_process_group()
