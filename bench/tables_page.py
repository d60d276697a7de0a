"""Write the full page of bench/tables.py about a machine: Markdown from measured rows."""

from __future__ import annotations

import re
from typing import Any

from shapes import FAMILIES, SHAPES

NAMES = {
    "transformer_pp": "Transformer++",
    "gpt2": "GPT-2",
    "mixtral": "Mixtral",
    "muddformer": "MUDDFormer",
    "mup": "muP",
    "tokenformer": "TokenFormer",
}
BASELINES = ("eager", "compile", "jax")
UNITS = {
    "portable": "portable",
    "neon": "NEON",
    "avx2": "AVX2",
    "avx512": "AVX-512",
    "avx512_bf16": "AVX512-bf16",
    "amx_bf16": "AMX",
}
Row = dict[str, Any]


def slug(name: str) -> str:
    """Return the name of a CPU as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def rows_of(kept: Row, table: str) -> list[Row]:
    """Return the rows of a table in order of precision, shape and family."""
    order = (list(SHAPES), list(FAMILIES), ["ours", *BASELINES])

    def place(row: Row) -> tuple[Any, ...]:
        asked = (row.get("shape"), row.get("family"), row.get("program"))
        found = [o.index(x) if x in o else len(o) for o, x in zip(order, asked, strict=True)]
        return (row.get("precision") == "bf16", row.get("cap") == "none", *found)

    return sorted(kept.get(table, {}).values(), key=place)


def cases(kept: Row) -> list[tuple[Row, dict[str, Row]]]:
    """Return the mudd_core row of every measured case, with the rows of the baselines by name."""
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows_of(kept, "steps"):
        case = (row["precision"], row["cap"], row["shape"], row["family"])
        found.setdefault(case, {})[row["program"]] = row
    return [(programs["ours"], programs) for programs in found.values() if "ours" in programs]


def numbers(ours: Row) -> str:
    """Return the precision and the instruction set of a run, such as "fp32, AVX2"."""
    level = ours["isa"]
    if ours["precision"] == "fp32" and level.endswith("_bf16"):
        level = "avx512"  # fp32 does not use the bf16 instructions
    return f"{ours['precision']}, {UNITS.get(level, level)}"


def valid(row: Row | None) -> bool:
    """Return True if this baseline was measured and took the same steps."""
    return row is not None and not row.get("other_steps")


def over_better(programs: dict[str, Row]) -> str:
    """Return the speed ratio of mudd_core to the faster of eager and compiled PyTorch."""
    speeds = [(programs[p]["tokens_per_second"], p) for p in BASELINES[:2] if valid(programs.get(p))]
    if not speeds:
        return ""
    best, name = max(speeds)
    return f"{programs['ours']['tokens_per_second'] / best:.2f} ({name})"


def ratio(programs: dict[str, Row], baseline: str, key: str, form: str) -> str:
    """Return the ratio of mudd_core to a baseline; an empty string if it was not measured or took different steps."""
    row = programs.get(baseline)
    return format(programs["ours"][key] / row[key], form) if row and valid(row) else ""


def stamp(rows: list[Row]) -> str:
    """Return the conditions of a table's rows without repetition."""
    conditions = {
        f"{r['threads']} threads, MUDD_MAX_ISA{' unset' if r['cap'] == 'none' else '=' + r['cap']}, "
        f"commit {r['commit']}, {r['date'][:10]}" + (" (quick)" if r.get("quick") else "")
        for r in rows
    }
    return "; ".join(sorted(conditions))


def share(row: Row) -> str:
    """Return the percentage of the peak of the instructions used; an empty string if that peak was not measured."""
    if row["precision"] == "fp32":
        return f"{row['share_of_peak']:.0%}"
    return f"{row['share_of_unit_peak']:.0%}" if row.get("share_of_unit_peak") else ""


def steps_text(kept: Row) -> list[str]:
    """Return the table of steps: one line for each program."""
    rows = rows_of(kept, "steps")
    out = [
        f"Tokens/s and resident memory of whole optimizer steps, from equal weights and tokens. {stamp(rows)}\n",
        "| numbers | shape | family | program | tokens/s | spread | of peak | peak RSS MiB | ours : tokens/s "
        "| ours : RSS | difference of loss | rounds, steps, warm-up |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for ours, programs in cases(kept):
        for program, r in programs.items():
            same = "" if r is ours else r["other_steps"] or f"{r['loss_difference']:.0e}"
            out.append(
                f"| {numbers(ours)} | {r['shape']} | {NAMES[r['family']]} | {r['name']} "
                f"| {r['tokens_per_second']:.0f} | {r['spread']:.0%} | {share(r)} "
                f"| {r['peak_rss_mib']:.0f} "
                f"| {'' if r is ours else ratio(programs, program, 'tokens_per_second', '.2f')} "
                f"| {'' if r is ours else ratio(programs, program, 'peak_rss_mib', '.0%')} | {same} "
                f"| {r['rounds']}, {r['steps']}, {r['warmup']} |"
            )
    return out


def generation_text(kept: Row) -> list[str]:
    """Return the table of generation."""
    rows = rows_of(kept, "generation")
    return [
        f"One sequence, prompt 64, 256 greedy tokens; share: of the measured read bandwidth. {stamp(rows)}\n",
        "| shape | family | tokens/s | MB a token | read GB/s | share | prefill tokens/s |",
        "|---|---|---|---|---|---|---|",
    ] + [
        f"| {r['shape']} | {NAMES[r['family']]} | {r['tokens_per_second']:.0f} | {r['mb_per_token']:.0f} "
        f"| {r['read_gbps']:.1f} | {r['share']:.0%} | {r['prefill_tokens_per_second']:.0f} |"
        for r in rows
    ]


def attention_text(kept: Row) -> list[str]:
    """Return the table of attention on long sequences."""
    rows = sorted(rows_of(kept, "attention"), key=lambda r: int(r["shape"].split(", ")[2]))
    out = [
        f"Causal attention alone, GFLOP/s, causal FLOPs counted once, beside PyTorch's SDPA. {stamp(rows)}\n",
        "| B, H, T, hd | forward: ours, of peak | torch | ratio | forward + backward: ours, of peak | torch | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        g, peak = r["gflops"], r["peak_gflops"]
        out.append(
            f"| {r['shape']} | {g['ours']:.0f}, {g['ours'] / peak:.0%} | {g['torch']:.0f} "
            f"| {g['ours'] / g['torch']:.2f} | {g['ours both']:.0f}, {g['ours both'] / peak:.0%} "
            f"| {g['torch both']:.0f} | {g['ours both'] / g['torch both']:.2f} |"
        )
    return out


def small_text(kept: Row) -> list[str]:
    """Return the tables of threads and start-up."""
    out = []
    for r in rows_of(kept, "threads"):
        speeds = ", ".join(f"{n} threads {v:.0f}" for n, v in r["tokens_per_second"].items())
        out.append(
            f"- {r['shape']}, Transformer++, tokens/s: {speeds}: {r['speedup']:.2f} times, bound. {stamp([r])}"
        )
    for r in rows_of(kept, "startup"):
        out.append(
            f"- `import mudd_core; mc.isa()`: {1e3 * r['import_seconds']:.0f} ms; first step of configs/small.py: "
            f"{r['first_step_seconds']:.2f} s after the command, on a warm cache. {stamp([r])}"
        )
    return out


def page(kept: Row) -> str:
    """Return the whole page of results."""
    out = [f"# Bench: {kept['cpu']}, {kept['cores']} cores", "", "Written by `python bench/tables.py`."]
    for title, table, text in (
        ("Steps", "steps", steps_text),
        ("Generation", "generation", generation_text),
        ("Attention on long sequences", "attention", attention_text),
    ):
        if kept.get(table):
            out += ["", f"## {title}", "", *text(kept)]
    if small := small_text(kept):
        out += ["", "## Threads and start-up", "", *small]
    return "\n".join(out) + "\n"
