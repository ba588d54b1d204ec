from __future__ import annotations

import pytest

from noalias.audit.traceback_text import Frame, SavedText

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 40, in <module>
    loss.backward()
  File "/home/ada/.venv/lib/python3.11/site-packages/torch/_tensor.py", line 630, in backward
    torch.autograd.backward(
  File "<string>", line 1, in <module>
RuntimeError: one of the variables
"""

ANOMALY = """\
/venv/lib/python3.11/site-packages/torch/autograd/graph.py:979: UserWarning: Error detected in \
ExpBackward0. Traceback of forward call that caused the error:
  File "/home/ada/net.py", line 5, in forward
    weights = scores.exp()
  File "/venv/lib/python3.11/site-packages/torch/_tensor.py", line 39, in wrapped
    return f(*args)
 (Triggered internally at python_anomaly_mode.cpp:122.)
"""


def test_the_user_line_is_the_innermost_one_outside_libraries() -> None:
    line = SavedText.of(TRACEBACK).user_line()
    assert str(line) == "/home/ada/train.py:40  loss.backward()"


def test_a_frame_without_source_takes_no_other_line_for_it() -> None:
    frames = SavedText.of(TRACEBACK).frames()
    assert [frame.source for frame in frames] == ["loss.backward()", "torch.autograd.backward(", ""]


def test_rank_prefixes_of_launchers_are_taken_away() -> None:
    text = "".join(f"[rank3]: {line}\n" for line in TRACEBACK.splitlines())
    assert SavedText.of(text) == SavedText.of(TRACEBACK)


def test_colours_are_taken_away() -> None:
    assert SavedText.of("\x1b[1;31mError\x1b[0m: \x1b]0;title\x07x").flat == "Error: x"


def test_anomaly_mode_gives_the_node_and_the_forward_line() -> None:
    found = SavedText.of(ANOMALY + TRACEBACK).anomaly()
    assert found is not None
    assert (found[0], str(found[1])) == (
        "ExpBackward0", "/home/ada/net.py:5  weights = scores.exp()"
    )  # fmt: skip


def test_a_text_without_frames_has_no_user_line() -> None:
    saved = SavedText.of("RuntimeError: a message alone")
    assert (saved.user_line(), saved.anomaly()) == (None, None)


def test_a_long_log_is_read_from_its_end() -> None:
    assert SavedText.of("x" * 2_000_000 + "\nthe end").flat.endswith("the end")


@pytest.mark.parametrize(
    ("file", "ours"),
    [
        ("/home/me/train.py", True),
        ("/home/me/noalias/tests/train.py", True),
        ("/home/me/noalias/src/noalias/audit/engine.py", False),
        ("/venv/lib/python3.11/site-packages/noalias/audit/engine.py", False),
        ("/venv/lib/python3.11/site-packages/torch/_tensor.py", False),
        ("<string>", False),
    ],
)
def test_a_file_in_a_checkout_of_noalias_is_the_users_and_the_package_is_not(
    file: str, ours: bool
) -> None:
    assert Frame(file, 1, "", "").ours is ours
