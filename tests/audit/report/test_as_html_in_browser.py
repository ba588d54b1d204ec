"""The HTML report in a real browser: Debian's Chromium, headless.

The page's own policy forbids any script but its own, so a test adds its script to the page
together with its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import audit_samples as samples
import pytest

from noalias.audit.report import as_html

Chromium = Callable[..., str]

PAGES = {name: as_html.render(getattr(samples, name)()) for name in ("full", "hostile")}
POLICY = "script-src "
FIRST = 'document.querySelector("#findings tbody tr").cells[0].dataset.key'


def asked(chromium: Chromium, page: str, program: str, *flags: str) -> object:
    """What `program`, a JavaScript function body, returns when run in the page."""
    script = (
        "addEventListener('load', () => { const out = document.createElement('pre'); "
        f"out.id = 'answer'; out.textContent = JSON.stringify((() => {{ {program} }})()); "
        "document.body.append(out); })"
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if page.startswith("<!doctype html>"):  # not a test's own frame around a page
        page = page.replace(POLICY, f"{POLICY}&#x27;sha256-{digest}&#x27; ", 1)
    head, _, tail = page.rpartition("</body>")
    dumped = chromium(f"{head}<script>{script}</script></body>{tail}", *flags, "--dump-dom")
    answer = re.search(r'<pre id="answer">(.*?)</pre>', dumped, re.DOTALL)
    assert answer is not None, "the page's policy blocked the test's script, or it raised"
    return json.loads(html.unescape(answer[1]))


def test_the_page_s_own_style_and_script_pass_its_policy(chromium: Chromium) -> None:
    answer = asked(
        chromium,
        PAGES["full"],
        "return [document.documentElement.className, getComputedStyle(document.body).margin,"
        " document.querySelectorAll('#findings th button').length]",
    )
    assert answer == ["script", "0px", 9]


def test_a_stranger_s_script_does_not_run(chromium: Chromium) -> None:
    answer = asked(
        chromium,
        PAGES["hostile"],
        "return [document.scripts.length, document.images.length, document.links.length,"
        " document.querySelectorAll('[onerror],[style]').length]",
    )
    findings = len(samples.hostile().findings)
    assert answer == [2, 0, findings, 0]  # the page's script and the test's; a link per finding


def test_the_table_sorts_by_number_and_back(chromium: Chromium) -> None:
    answer = asked(
        chromium,
        PAGES["full"],
        f"""
        const heads = [...document.querySelectorAll("#findings th")];
        const copies = heads.find((h) => h.textContent === "Copies");
        const first = () => {FIRST};
        const before = first();
        copies.querySelector("button").click();
        const most = first(), down = copies.getAttribute("aria-sort");
        copies.querySelector("button").click();
        const least = first(), up = copies.getAttribute("aria-sort");
        heads[0].querySelector("button").click();
        return [before, most, down, least, up, first(), copies.hasAttribute("aria-sort")];
        """,
    )
    assert answer == ["NA101", "NA201", "descending", "NA303", "ascending", "NA101", False]


def test_the_theme_button_goes_from_auto_to_light_to_dark(chromium: Chromium) -> None:
    answer = asked(
        chromium,
        PAGES["full"],
        """
        const button = document.getElementById("theme");
        const seen = [];
        for (let i = 0; i < 4; i++) {
          seen.push([button.textContent, getComputedStyle(document.body).backgroundColor]);
          button.click();
        }
        return seen;
        """,
    )
    light, dark = "rgb(251, 250, 247)", "rgb(19, 21, 24)"
    assert answer == [
        ["Theme: auto", light],
        ["Theme: light", light],
        ["Theme: dark", dark],
        ["Theme: auto", light],
    ]


def test_a_dark_system_gets_a_dark_page(chromium: Chromium) -> None:
    answer = asked(
        chromium,
        PAGES["full"],
        "return getComputedStyle(document.body).backgroundColor",
        "--blink-settings=preferredColorScheme=0",
    )
    assert answer == "rgb(19, 21, 24)"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_screen_has_to_be_scrolled_sideways(chromium: Chromium, name: str, width: int) -> None:
    frame = (
        f'<html><body><iframe id="frame" width="{width}" height="800" '
        f'srcdoc="{html.escape(PAGES[name])}"></iframe></body></html>'
    )
    answer = asked(
        chromium,
        frame,
        "const page = document.getElementById('frame').contentDocument.documentElement;"
        "return [page.clientWidth, page.scrollWidth]",
    )
    assert isinstance(answer, list)
    shown, needed = answer
    assert needed <= shown


def test_the_page_prints(chromium: Chromium, tmp_path: Path) -> None:
    pdf = tmp_path / "report.pdf"
    chromium(PAGES["full"], f"--print-to-pdf={pdf}")
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF-")
    assert b"/Type /Page" in data
