"""Write the sections of docs/performance.md and README.md for bench/tables.py: Markdown from measured rows."""

from __future__ import annotations

import re

from tables_page import NAMES, Row, cases, numbers, over_better, ratio, rows_of, share

BEGIN, END = "<!-- bench/tables.py writes this -->", "<!-- to here -->"


def when(rows: list[Row]) -> str:
    """Return the first and last date and commit of the rows."""
    stamps = sorted({(row["date"], row["commit"]) for row in rows})
    if not stamps:
        return ""
    days = dict.fromkeys(stamps[i][0][:10] for i in (0, -1))
    commits = dict.fromkeys(stamps[i][1] for i in (0, -1))
    return f", {' to '.join(days)}, commits {' to '.join(commits)}"


def span(cells: list[str]) -> str:
    """Return the range of the numbers at the start of the cells, such as "1.36 to 1.47"."""
    found = sorted((cell.split()[0] for cell in cells if cell), key=lambda text: float(text.rstrip("%")))
    return " to ".join(dict.fromkeys((found[0], found[-1]))) if found else ""


def headline(machines: list[Row]) -> str:
    """Return the table of README.md: the range of ratios over families and shapes, for CPUs with compiled baselines."""
    out = [
        "| CPU | precision | shapes | families | speed over PyTorch | over JAX | memory relative to eager PyTorch |",
        "|---|---|---|---|---|---|---|",
    ]
    for kept in machines:
        if not any("compile" in programs for _, programs in cases(kept)):
            continue
        groups: dict[str, list[tuple[Row, dict[str, Row]]]] = {}
        for ours, programs in cases(kept):
            groups.setdefault(numbers(ours), []).append((ours, programs))
        for units, found in groups.items():
            shapes = ", ".join(dict.fromkeys(ours["shape"] for ours, _ in found))
            families = len({ours["family"] for ours, _ in found})
            speed = span([over_better(programs) for _, programs in found])
            jax = span([ratio(programs, "jax", "tokens_per_second", ".2f") for _, programs in found])
            memory = span([ratio(programs, "eager", "peak_rss_mib", ".0%") for _, programs in found])
            out.append(f"| {kept['cpu']} | {units} | {shapes} | {families} | {speed} | {jax} | {memory} |")
    return "\n".join(out) + "\n"


def versions(found: list[tuple[Row, dict[str, Row]]]) -> str:
    """Return the versions of PyTorch in the rows, such as " 2.13"."""
    names = (row["name"] for _, programs in found for row in programs.values())
    return " ".join(dict.fromkeys(m[0] for name in names if (m := re.search(r"(?<=PyTorch) \d+\.\d+", name))))


def summary(kept: Row) -> str:
    """Return the section of docs/performance.md about a machine."""
    found = cases(kept)
    out = [
        f"## {kept['cpu']}, {kept['cores']} cores and threads{when([ours for ours, _ in found])}\n",
        "| family | shape | precision | tokens/s | steps | spread | of peak "
        f"| over PyTorch{versions(found)} | over JAX | memory relative to eager |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for ours, programs in found:
        out.append(
            f"| {NAMES[ours['family']]} | {ours['shape']} | {numbers(ours)} | {ours['tokens_per_second']:,.0f} "
            f"| {ours['steps']} | {ours['spread']:.0%} | {share(ours)} | {over_better(programs)} "
            f"| {ratio(programs, 'jax', 'tokens_per_second', '.2f')} "
            f"| {ratio(programs, 'eager', 'peak_rss_mib', '.0%')} |"
        )
    rows = rows_of(kept, "generation")
    if rows:
        cells = ", ".join(f"{r['shape']} {r['tokens_per_second']:.0f} ({r['share']:.0%})" for r in rows)
        out.append(
            f"\nGeneration of one sequence, in tokens/s (percentage of the read bandwidth): {cells}.\n"
        )
    rows = sorted(rows_of(kept, "attention"), key=lambda r: int(r["shape"].split(", ")[2]))
    if rows:
        cells = ". ".join(
            f"T = {int(r['shape'].split(', ')[2]):,}: {r['gflops']['ours'] / r['peak_gflops']:.0%} forward, "
            f"{r['gflops']['ours both'] / r['peak_gflops']:.0%} with backward, "
            f"{r['gflops']['ours both'] / r['gflops']['torch both']:.2f} times as fast as SDPA"
            for r in rows
        )
        out.append(f"Attention alone, as a percentage of the fp32 peak. {cells}.\n")
    for r in rows_of(kept, "threads"):
        out.append(
            f"{r['threads']} threads bound to cores are {r['speedup']:.2f} times as fast as one ({r['shape']}).\n"
        )
    for r in rows_of(kept, "startup"):
        out.append(
            f"The first step of `configs/small.py` starts {r['first_step_seconds']:.2f} s after the command. "
            f"Import and `mc.isa()` take {1e3 * r['import_seconds']:.0f} ms."
        )
    return "\n".join(out) + "\n"


def with_section(text: str, section: str) -> str:
    """Return the page with the section between its two marks replaced; raise ValueError if a mark is missing."""
    if BEGIN not in text or END not in text:
        raise ValueError(f"[tables] page: expected the marks {BEGIN} and {END}")
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{section}{END}{rest.partition(END)[2]}"
