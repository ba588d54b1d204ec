from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import audit_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noalias.audit import baseline
from noalias.audit.codec import FormatError

ROOT = "/home/ada/seg"


def test_a_fingerprint_survives_moved_lines_and_another_checkout() -> None:
    moved = replace(samples.HIDDEN, line=99, file="/ci/build/seg/blocks.py", count=7, copies=28)
    here = baseline.fingerprint(samples.HIDDEN, ROOT)
    assert here == baseline.fingerprint(moved, "/ci/build/seg")


def test_a_fingerprint_survives_reformatting() -> None:
    spaced = replace(
        samples.HIDDEN, source="return  F.leaky_relu( self.norm(x), 0.01, inplace=True )"
    )
    assert baseline.fingerprint(samples.HIDDEN, ROOT) == baseline.fingerprint(spaced, ROOT)


@pytest.mark.parametrize(
    "change",
    [{"code": "NA102"}, {"source": "x.relu_()"}, {"operator": "aten::relu_"},
     {"module": "decoder"}, {"file": f"{ROOT}/other.py"}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_fingerprint_changes_with_what_matters(change: dict[str, str]) -> None:
    changed = replace(samples.HIDDEN, **change)
    assert baseline.fingerprint(samples.HIDDEN, ROOT) != baseline.fingerprint(changed, ROOT)


def test_parts_cannot_be_shifted_into_each_other() -> None:
    one = replace(samples.HIDDEN, source="a", operator="\x1fb", module="")
    two = replace(samples.HIDDEN, source="a", operator="", module="b")
    assert baseline.fingerprint(one) != baseline.fingerprint(two)


def test_a_file_outside_the_root_keeps_its_last_two_parts() -> None:
    name = "/usr/lib/python3/site-packages/monai/blocks.py"
    assert baseline.relative_file(name, ROOT) == "monai/blocks.py"
    assert baseline.relative_file(f"{ROOT}/a/b.py", ROOT) == "a/b.py"
    assert baseline.relative_file("a/../b.py", ROOT) == "b.py"


def test_only_what_is_new_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    baseline.write(path, [samples.HIDDEN, samples.FILL], ROOT)
    new, known = baseline.read(path).split([samples.FILL, samples.OBSERVABLE], ROOT)
    assert (new, known) == ((samples.OBSERVABLE,), (samples.FILL,))


def test_a_second_copy_of_a_known_line_is_new() -> None:
    known = baseline.loads(baseline.baseline_text([samples.HIDDEN], ROOT))
    new, old = known.split([samples.HIDDEN, replace(samples.HIDDEN, line=80)], ROOT)
    assert ([f.line for f in new], [f.line for f in old]) == ([80], [41])


def test_the_file_is_ordered_and_has_no_line_numbers() -> None:
    one = baseline.baseline_text([samples.HIDDEN, samples.FILL], ROOT)
    two = baseline.baseline_text([samples.FILL, replace(samples.HIDDEN, line=1)], ROOT)
    assert one == two
    assert [entry["file"] for entry in json.loads(one)["findings"]] == ["blocks.py", "decoder.py"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ("[]", "is not a noalias baseline"),
        ('{"findings": []}', "is not a noalias baseline"),
        ('{"noalias_baseline": 1}', "lacks the key 'findings'"),
        ('{"noalias_baseline": 2, "findings": []}', "of version 2, this noalias reads version 1"),
        ('{"noalias_baseline": 1, "findings": [3]}', r"findings\[0\] must be an object, got 3"),
        ('{"noalias_baseline": 1, "findings": [{"fingerprint": "a", "times": 0}]}',
         r"findings\[0\]: times must be at least 1, got 0"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_its_name_and_the_place(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "known.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=complaint) as caught:
        baseline.read(path)
    assert "known.json" in str(caught.value)


def test_binary_rubbish_is_refused() -> None:
    with pytest.raises(FormatError, match="is not JSON"):
        baseline.loads(b"\x89PNG\r\n\x1a\n\x00")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text: str | bytes) -> None:
    with pytest.raises(FormatError):
        baseline.loads(text)


@given(version=json_values, findings=json_values | st.lists(st.fixed_dictionaries(
    {"fingerprint": json_values, "times": json_values})))  # fmt: skip
def test_any_json_is_read_or_refused(version: object, findings: object) -> None:
    text = json.dumps({"noalias_baseline": version, "findings": findings})
    try:
        known = baseline.loads(text)
    except FormatError:
        return
    assert all(times >= 1 for times in known.times.values())


@given(st.text(), st.text(), st.text())
def test_any_names_have_a_fingerprint_and_are_known(file: str, source: str, module: str) -> None:
    finding = replace(samples.HIDDEN, file=file, source=source, module=module)
    known = baseline.loads(baseline.baseline_text([finding]))
    assert known.split([finding]) == ((), (finding,))
