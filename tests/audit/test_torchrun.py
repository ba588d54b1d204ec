"""``noalias audit`` under torchrun: two real processes that train together over gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noalias.audit.report import as_json

pytestmark = pytest.mark.usefixtures("core")

TRAIN = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
block = nn.Sequential(nn.Conv1d(2, 3, 3), nn.InstanceNorm1d(3), nn.ReLU(inplace=True))
net = nn.parallel.DistributedDataParallel(block)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = net(torch.randn(2, 2, 8)).square().sum()
    if dist.get_rank() == 1:
        seen = loss.view(1)
        seen.mul_(2)
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_each_rank_has_a_report_and_the_merged_one_shows_shared_findings_once(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.py"
    path.write_text(TRAIN, encoding="utf-8")
    # Of an earlier run: rank 0 must not take it for this one's.
    (tmp_path / "all.rank1.json").write_text("{}", encoding="utf-8")

    done = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
            "-m", "noalias", "audit", "--format", "json", "-o", "all.json", str(path),
        ],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    own = [as_json.read(tmp_path / f"all.rank{number}.json") for number in range(2)]
    assert [report.rank.rank for report in own if report.rank is not None] == [0, 1]
    assert [(len(report.findings), report.steps.seen) for report in own] == [(1, 3), (2, 3)]

    merged = as_json.read(tmp_path / "all.json")
    found = {finding.source: (finding.code, finding.ranks) for finding in merged.findings}
    assert found == {
        "loss = net(torch.randn(2, 2, 8)).square().sum()": ("NA101", (0, 1)),
        "seen.mul_(2)": ("NA102", (1,)),
    }
    assert [(summary.rank.rank, summary.findings) for summary in merged.ranks] == [(0, 1), (1, 2)]
    assert merged.steps.seen == 3
