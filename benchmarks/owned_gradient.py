"""``python benchmarks/owned_gradient.py``: whole training steps with and without the cure.

Bytes are what the CPU allocator hands out in one step's backward, and the most of them at a time;
they repeat exactly. Times are CPU seconds of the process for forward and backward, the two
variants in turn, as minimum and median, with the median of the page faults: all of these depend
on the machine and its malloc.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import statistics
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

import noalias

if TYPE_CHECKING:
    from collections.abc import Callable


class Decoder(nn.Module):
    """A language model's end: a gated block with dropout, then the loss over a vocabulary."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4 * width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x: Tensor) -> Tensor:
        h = nn.functional.silu(self.gate(x)) * self.up(x)
        logits = self.head(x + nn.functional.dropout(self.down(h), 0.1))
        return nn.functional.cross_entropy(logits.flatten(0, 1), self.targets(logits))

    @staticmethod
    def targets(logits: Tensor) -> Tensor:
        return torch.arange(logits[..., 0].numel()) % logits.shape[-1]


def stack(*layers: Callable[[], nn.Module]) -> nn.Sequential:
    return nn.Sequential(*(layer() for _ in range(4) for layer in layers))


def linear() -> nn.Linear:
    return nn.Linear(64, 64)


def cases(scale: int) -> dict[str, tuple[nn.Module, Tensor]]:
    rows = torch.randn(262_144 // scale, 64)
    images = torch.randn(max(1, 32 // scale), 16, 128, 128)
    words = torch.randn(max(1, 16 // scale), 64, 128)
    return {
        f"4 x (Linear 64, ReLU), {len(rows)} rows": (stack(linear, nn.ReLU), rows),
        f"4 x (Linear 64, GELU), {len(rows)} rows": (stack(linear, nn.GELU), rows),
        f"4 x (Conv 16, BatchNorm, ReLU), {len(images)} images of 128 x 128": (
            stack(lambda: nn.Conv2d(16, 16, 3, padding=1), lambda: nn.BatchNorm2d(16), nn.ReLU),
            images,
        ),
        f"SwiGLU, dropout, loss over 8192 words, {words[..., 0].numel()} words": (
            Decoder(128, 8192),
            words,
        ),
    }


def step(model: nn.Module, data: Tensor) -> Tensor:
    model.zero_grad(set_to_none=True)
    return model(data).sum()


def memory(model: nn.Module, data: Tensor) -> tuple[float, float]:
    """MiB allocated in backward, and the largest sum of those alive at once."""
    loss = step(model, data)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        loss.backward()
    total = alive = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            total += max(0, event.nbytes())
            alive += event.nbytes()
            peak = max(peak, alive)
    return total / 2**20, peak / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="divide the batch by this")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--first", type=int, help="run only so many of the cases")
    options = parser.parse_args()
    torch.manual_seed(0)
    for name, (model, data) in itertools.islice(cases(options.scale).items(), options.first):
        step(model, data).backward()
        stock_bytes = memory(model, data)
        with noalias.enabled("owned_gradient"):
            cured_bytes = memory(model, data)
        times: tuple[list[float], list[float]] = ([], [])
        faults: tuple[list[int], list[int]] = ([], [])
        for _ in range(options.repeat):
            for which, seconds in enumerate(times):
                noalias.disable()
                if which:
                    noalias.enable("owned_gradient")
                step(model, data).backward()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                start = time.process_time()
                step(model, data).backward()
                seconds.append(time.process_time() - start)
                after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                faults[which].append(after - before)
        noalias.disable()
        low = [1e3 * min(seconds) for seconds in times]
        middle = [1e3 * statistics.median(seconds) for seconds in times]
        pages = [int(statistics.median(counts)) for counts in faults]
        print(
            f"{name}\n"
            f"  allocated {stock_bytes[0]:.0f} -> {cured_bytes[0]:.0f} MiB,"
            f" peak {stock_bytes[1]:.0f} -> {cured_bytes[1]:.0f} MiB\n"
            f"  CPU ms, minimum {low[0]:.1f} -> {low[1]:.1f},"
            f" median {middle[0]:.1f} -> {middle[1]:.1f};"
            f" page faults {pages[0]} -> {pages[1]}",
            flush=True,
        )


if __name__ == "__main__":
    main()
