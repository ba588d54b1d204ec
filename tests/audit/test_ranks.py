"""Reports of ranks: where they lie, and how they come together."""

from __future__ import annotations

from pathlib import Path

import audit_samples as samples
import pytest

from noalias.audit import ranks
from noalias.audit.codec import FormatError
from noalias.audit.environment import rank
from noalias.audit.result import Rank, Report


def report(number: int, size: int = 2) -> Report:
    return Report(findings=(samples.HIDDEN,), rank=Rank(number, size))


def test_rank_is_read_from_the_variables_that_torchrun_sets() -> None:
    found = rank({"RANK": "3", "WORLD_SIZE": "4"})

    assert found is not None
    assert (found.rank, found.world_size) == (3, 4)


@pytest.mark.parametrize(
    "variables",
    [{}, {"RANK": "1"}, {"RANK": "x", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2"}],
)
def test_no_rank_without_both_variables_in_range(variables: dict[str, str]) -> None:
    assert rank(variables) is None


def test_reports_lie_beside_the_merged_one(tmp_path: Path) -> None:
    assert ranks.path_of(3, str(tmp_path / "all.html")) == tmp_path / "all.rank3.json"
    assert ranks.path_of(0, None) == Path("noalias-audit.rank0.json")


def test_rank_0_collects_what_the_others_wrote(tmp_path: Path) -> None:
    given = str(tmp_path / "all.html")
    for number in (1, 0):
        ranks.write(report(number), given)

    merged = ranks.collect(2, given, patience=0)

    (finding,) = merged.findings
    assert finding.ranks == (0, 1)


def test_missing_rank_is_named_when_patience_ends(tmp_path: Path) -> None:
    given = str(tmp_path / "all.html")
    ranks.write(report(0), given)

    merged = ranks.collect(2, given, patience=0)

    assert any("1 of 2 ranks have no report here: 1" in note for note in merged.notes)


def test_a_folder_stands_for_the_reports_in_it(tmp_path: Path) -> None:
    for number in (0, 1):
        ranks.write(report(number), str(tmp_path / "all.json"))

    assert len(ranks.read([tmp_path]).ranks) == 2


def test_a_file_that_is_no_report_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}", encoding="utf-8")

    with pytest.raises(FormatError, match="schema_version"):
        ranks.read([path])
