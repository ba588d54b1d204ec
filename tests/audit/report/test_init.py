from __future__ import annotations

import subprocess
import sys

import audit_samples as samples
import pytest

from noalias.audit.report import FORMATS, render


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_renders_every_report_as_utf_8(format_: str) -> None:
    for report in (samples.full(), samples.hostile()):
        assert render(report, format_).encode("utf-8").endswith(b"\n")


def test_an_unknown_format_is_refused_and_the_formats_listed() -> None:
    with pytest.raises(ValueError, match="no report format 'pdf'; there are text, json, html"):
        render(samples.full(), "pdf")


def test_rendering_does_not_import_pytorch() -> None:
    program = (
        "import sys\nfrom noalias.audit.report import FORMATS, render\n"
        "from noalias.audit.result import Report\n"
        "for name in FORMATS: render(Report(), name)\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
