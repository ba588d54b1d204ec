"""Write the tables of docs/benchmarks.md and the README from benchmarks/results.

    python tools/benchmark_tables.py           # write
    python tools/benchmark_tables.py --check   # exit 1 where a page is stale

A page marks a table's place with `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "docs" / "benchmarks.md", ROOT / "README.md")
PLACE = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Row = Mapping[str, Any]  # a row of a benchmark's JSON: its values are numbers, strings and rows


def markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table; a column whose name starts with > is aligned to the right."""
    names = list(columns)
    lines = [
        "| " + " | ".join(name.removeprefix(">") for name in names) + " |",
        "|" + "|".join("--:" if name.startswith(">") else "---" for name in names) + "|",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def milliseconds(time: Row | None) -> str:
    return "over limit" if time is None else number(time["min_s"] * 1e3)


def mebibytes(size: float | None) -> str:
    return "–" if size is None else number(size / 2**20)


def ratio(of: Row) -> str:
    return f"{of['of_minima']:.2f} ({of['median']:.2f})"


def three_way(rows: Any) -> str:
    columns = ["row", ">min, ms", ">to workaround, min (median)", ">copies", ">allocated, MiB"]
    return markdown(
        [*columns, ">peak, MiB", ">nodes", ">`CopySlices`"],
        (
            (
                row["name"],
                milliseconds(row["time"]),
                ratio(row["to_workaround"]),
                str(row["counts"]["copies"]),
                mebibytes(row["counts"]["allocated_bytes"]),
                mebibytes(row["counts"]["peak_bytes"]),
                str(row["nodes"]),
                str(row["copy_slices"]),
            )
            for row in rows["rows"]
        ),
    )


def hot_path(rows: Any) -> str:
    phases = list(dict.fromkeys(row["phase"] for row in rows))
    by_input: dict[str, list[str]] = {}
    for row in rows:
        shape = " × ".join(map(str, [*row["shape"][:-1], 16]))
        name = f"{shape}, {'bias' if row['bias'] else 'no bias'}"
        by_input.setdefault(name, []).append(ratio(row["to_stock"]))
    return markdown(["input", *(f">{p}" for p in phases)], ([n, *r] for n, r in by_input.items()))


def added(rows: Any) -> str:
    def microseconds(seconds: float) -> str:
        return f"{seconds * 1e6:+.2f} µs"

    return markdown(
        ["call", ">stock, min", ">added", ">added, median"],
        (
            (
                f"`{row['call'].split(', ')[0]}`, {row['call'].split(', ')[1]}",
                f"{row['stock']['min_s'] * 1e6:.2f} µs",
                microseconds(row["added"]),
                microseconds(row["added_median"]),
            )
            for row in rows["added"]
        ),
    )


def compared(rows: Any) -> str:
    def cells(row: Row) -> tuple[str, ...]:
        stock, enabled = row["stock"], row["enabled"]
        before, after = stock["counts"], enabled["counts"]

        def both(show: Callable[[Any], str], of: str) -> str:
            return f"{show(before[of])} → {show(after[of])}"

        return (
            row["program"],
            f"{stock['copy_slices']} → {enabled['copy_slices']}",
            both(str, "copies"),
            both(mebibytes, "allocated_bytes"),
            both(mebibytes, "peak_bytes"),
            f"{milliseconds(stock['time'])} → {milliseconds(enabled['time'])}",
            ratio(row["time"]),
            row["gradients"],
        )

    columns = ["program", ">`CopySlices`", ">copies", ">allocated, MiB", ">peak, MiB"]
    measured = (row for row in rows if row.get("stock") is not None)
    return markdown(
        [*columns, ">step, min, ms", ">ratio, min (median)", "gradients"], map(cells, measured)
    )


def compiled(rows: Any) -> str:
    return markdown(
        ["input", ">compile time", ">run time"],
        (
            (
                " × ".join(map(str, row["shape"])),
                ratio(row["compile_to_stock"]),
                ratio(row["to_stock"]),
            )
            for row in rows
        ),
    )


def growth(rows: Any) -> str:
    columns = ["loop", ">T", ">stock, ms", ">cured, ms", ">by hand, ms", ">stock / cured"]
    return markdown(
        [*columns, ">cured / by hand, min (median)", ">peak: stock, cured, by hand, MiB"],
        (
            (
                f"{row['loop']} ({row['by_hand_name']})",
                str(row["steps"]),
                milliseconds(row["stock"]),
                milliseconds(row["cured"]),
                milliseconds(row["by_hand"]),
                "" if row["stock"] is None else number(row["stock_over_cured"]["of_minima"]),
                ratio(row["cured_over_by_hand"]),
                ", ".join(
                    mebibytes(row[f"{name}_peak_bytes"]) for name in ("stock", "cured", "by_hand")
                ),
            )
            for row in rows["points"]
        ),
    )


def fits(rows: Any) -> str:
    return markdown(
        ["loop", "variant", ">exponent", ">fitted over"],
        (
            (
                row["loop"],
                row["variant"],
                f"{row['exponent']:.2f}",
                f"{row['first']} to {row['last']}",
            )
            for row in rows["fits"]
        ),
    )


def budget(rows: Any) -> str:
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    by_call: dict[str, list[str]] = {}
    for row in rows:
        least = row["time"]["min_s"]
        if row["mode"] == "stock":
            shown = f"{least * 1e6:.2f} µs"
        elif row["call"].endswith(" step"):
            shown = f"× {least / (least - row['added']):.2f}"
        else:
            shown = f"{row['added'] * 1e6:+.2f} µs"
        by_call.setdefault(row["call"], []).append(shown)
    return markdown(["call", *(f">{m}" for m in modes)], ([c, *t] for c, t in by_call.items()))


KEPT_MEMORY = "growth --threads 1 --steps 256,512,1024,2048,4096 --stock-limit 0.5 --cold-caches"

# What stood in front of the command, by file.
ENVIRONMENT = {
    "growth-kept-memory": (
        "MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 "
        "MALLOC_TOP_PAD_=67108864 "
    )
}

# Name of the table -> file, table in it, what makes it of the file's rows, and the command.
TABLES: dict[str, tuple[str, str, Callable[[Any], str], str]] = {
    "three-way": ("three-way", "three-way", three_way, "three-way --threads 1"),
    "three-way-two-layers": (
        "three-way-two-layers",
        "three-way",
        three_way,
        "three-way --layers 2 --threads 1",
    ),
    "hot-path": ("hot-path", "hot-path", hot_path, "hot-path --threads 1"),
    "inplace": ("inplace", "inplace", added, "inplace --threads 1"),
    "hidden": ("inplace", "inplace", lambda rows: compared(rows["cured"]), "inplace --threads 1"),
    "compiled": ("compiled", "compiled", compiled, "compiled --threads 1"),
    "growth": ("growth", "growth", growth, "growth --threads 1"),
    "fits": ("growth", "growth", fits, "growth --threads 1"),
    "growth-kept-memory": ("growth-kept-memory", "growth", growth, KEPT_MEMORY),
    "fits-kept-memory": ("growth-kept-memory", "growth", fits, KEPT_MEMORY),
    "loops": ("growth", "growth", lambda rows: compared(rows["programs"]), "growth --threads 1"),
    "models": ("models", "models", compared, "models --threads 1"),
    "overhead": ("overhead", "overhead", budget, "overhead --threads 1"),
}


def table(name: str) -> str:
    """The table, under a line that says what made it."""
    file, key, render, command = TABLES[name]
    result = json.loads((RESULTS / f"cpu-torch2.13-{file}.json").read_text(encoding="utf-8"))
    machine = result["machine"]
    threads = "thread" if machine["threads"] == 1 else "threads"
    heading = (
        f"`{ENVIRONMENT.get(file, '')}noalias bench {command}`, "
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['threads']} {threads}, load {machine['load']:.1f}, "
        f"PyTorch {machine['torch'].split('+')[0]}:\n\n"
    )
    return heading + render(result["tables"][key])


def written(page: Path) -> str:
    """The page with its tables as the files have them."""
    return PLACE.sub(
        lambda place: f"{place[1]}{table(place[2])}{place[3]}", page.read_text(encoding="utf-8")
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    check = parser.parse_args(arguments).check
    stale = [page for page in PAGES if written(page) != page.read_text(encoding="utf-8")]
    for page in stale:
        if check:
            print(
                f"{page.relative_to(ROOT)} is stale: python {Path(__file__).relative_to(ROOT)}",
                file=sys.stderr,
            )
        else:
            page.write_text(written(page), encoding="utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
