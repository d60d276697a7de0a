"""The page of bench_ranks.py: every metric of data parallel training with its target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from rank_memory import parameters
from shapes import SHAPES, Shape
from workload import batch_tokens

Row = dict[str, Any]
LINK_BYTES = 125e6 * 0.94  # bytes per second: 1 Gb/s minus the headers of Ethernet, IP and TCP
EXPERTS = "2 ranks x 1 thread, mesh.expert=2"
CUT = "mesh.zero=3"
ZERO3 = f"2 ranks x 1 thread, {CUT}"
ZERO3_NODES = f"{ZERO3}, each a node"
MESSAGES, LINK = "dist.node=rank", "link of 1 Gb/s"  # two nodes, connected by memory or by a link
SPEEDS = ("steps", "experts", "zero3")  # the parts whose metrics are ratios
# (shape, program, program that it is divided by, smallest ratio), for both fp32 and bf16.
RATIOS = (
    ("55M", ZERO3_NODES, "1 rank x 2 threads", 0.9),
    ("55M", ZERO3, "1 rank x 2 threads", None),
    ("9M", ZERO3_NODES, "1 rank x 2 threads", None),
    ("9M", ZERO3, "1 rank x 2 threads", None),
    ("Mixtral 9M", EXPERTS, "DDP 25 MB", 1.5),
    ("55M", "2 ranks x 1 thread", "1 rank x 2 threads", 0.97),
    ("9M", "2 ranks x 1 thread", "1 rank x 2 threads", 0.93),
    ("55M", "2 ranks x 1 thread", "1 rank x 1 thread", 1.85),
    ("9M", "2 ranks x 1 thread", "1 rank x 1 thread", None),
    ("Mixtral 9M", EXPERTS, "1 rank x 2 threads", 0.95),
    ("Mixtral 9M", EXPERTS, "2 ranks x 1 thread", None),
    ("Mixtral 9M", "2 ranks x 1 thread", "1 rank x 2 threads", None),
    *(
        (shape, f"mpirun -n 1 x 2 threads, {binding}", "1 rank x 2 threads", 0.98)
        for shape in ("55M", "9M")
        for binding in ("bound by default", "not bound")
    ),
)


def hidden(rows: dict[str, Row], shape: str, count: int) -> list[Row]:
    """Return rows of two nodes: seconds of a step, with and without the other rank, and the hidden part of the bytes.

    rows: the first one has a single rank on its half of the batch. count: steps that sent the bytes.
    """
    alone, *nodes = rows.values()
    found = []
    for label, row in zip(list(rows)[1:], nodes, strict=True):
        step, compute = _step_seconds(row), _step_seconds(alone)
        sent = sum(bytes for purpose, (_, bytes) in row["sent"].items() if purpose != "control") / count
        one: Row = {
            "shape": shape,
            "program": label,
            "step_s": step,
            "alone_s": compute,
            "sent_mb": sent / 1e6,
            "processor_s": row["processor_seconds"],
            "alone_processor_s": alone["processor_seconds"],
            "exposed": row["exposed"],
            "sent": {k: v[1] / count for k, v in row["sent"].items()},
            "messages": {k: v[0] / count for k, v in row["sent"].items()},
        }
        if label.startswith(LINK):
            one["link_s"] = sent / LINK_BYTES
            one["hidden"] = 1 - (step - compute) / one["link_s"]
            one["left_over_s"] = step - max(compute, one["link_s"])
            faster = _step_seconds(rows[label.replace(LINK, MESSAGES)])
            one["hidden_from_messages"] = 1 - (step - faster) / one["link_s"]
        found.append(one)
    return found


def _step_seconds(row: Row) -> float:
    return float(row["tokens_of_a_step"] / row["tokens_per_second"])


def formula_bytes(s: Shape, cut: bool) -> dict[str, float]:
    """Return the bytes that the first of two nodes sends in a step: half of every plane, of the table rows alone.

    rows: of the second node's half of the table, that a sample of the first one has read; the mean of five steps.
    cut: mesh.zero=3, where weights are gathered forward and backward, the table and the head once.
    """
    plane, table = 4 * parameters(s), 4 * s.V * s.D
    ids = [np.unique(batch_tokens(s, step)[: s.B // 2, :-1]) for step in range(5)]
    rows = float(np.mean([np.count_nonzero(one >= s.V // 2) for one in ids]))
    gather = plane - table if cut else plane / 2  # the head is as large as the table
    return {"sum": (plane - table) / 2 + rows * 4 * s.D, "gather": gather}


def _formula(row: Row) -> str:
    """Return the MiB that the formula predicts for ranks of one node; for other meshes, the MiB of the plan."""
    return f"{row['formula_node']:.0f}" if "formula_node" in row else "-"


def metrics(kept: Row) -> Iterator[tuple[str, float, float | None, bool]]:
    """Yield (metric, measured value, target or None, whether less is better)."""
    for part in SPEEDS:
        yield from _speeds(_rows(kept, part))
    for row in _rows(kept, "sums"):
        yield (
            f"sum of {row['mib']:.0f} MiB: MPI_Allreduce over ours, time",
            row["allreduce_ms"] / row["window_ms"],
            5,
            False,
        )
        yield "its bytes a second over those of a copy", row["window_gb_s"] / row["copy_gb_s"], 0.5, False
    for row in [*_rows(kept, "memory"), *_rows(kept, "meshes")]:
        for against in ("formula", "plan"):
            if f"{against}_node" in row:
                away = abs(row["node"] / row[f"{against}_node"] - 1)
                where = f"{row['shape']}, world {row['ranks']}"
                yield f"{where}: how far the memory of the node is from the {against}", away, 0.1, True
    yield from _beside(_rows(kept, "baselines"), ("2 ranks x 1 thread",), 1.3, 0.6)
    yield from _beside(_rows(kept, "cut_baselines"), (ZERO3, ZERO3_NODES), 1.5, 0.8)
    for row in _rows(kept, "losses"):
        if not row["program"].startswith("2 ranks"):
            about = f"{row['shape']}: {row['program']}, largest difference of a loss from ours in {row['steps']} steps"
            yield about, row["loss_difference"], 1e-4, True
    for row in _rows(kept, "link"):
        for purpose, bytes in formula_bytes(SHAPES[row["shape"]], CUT in row["program"]).items():
            about = (
                f"{row['shape']}, {row['program']}: how far the bytes of the {purpose} are from the formula"
            )
            yield about, abs(row["sent"][purpose] / bytes - 1), 0.02, True
        if "hidden" in row:
            about = f"{row['shape']}, {row['program']}: communication hidden"
            bar = 0.7 if (row["shape"], row["program"]) == ("55M", LINK) else None
            yield about, row["hidden"], bar, False
            if "hidden_from_messages" in row:
                yield f"{about}, against {MESSAGES}", row["hidden_from_messages"], None, False


def _speeds(rows: list[Row]) -> Iterator[tuple[str, float, float | None, bool]]:
    """Yield the ratios between the programs of one part."""
    steps = {(r["shape"], r["precision"], r["program"]): r for r in rows if not r["other_steps"]}
    for (shape, precision, program), row in steps.items():
        for of, what, base, bar in RATIOS:
            if (of, what) == (shape, program) and (shape, precision, base) in steps:
                ratio = row["tokens_per_second"] / steps[shape, precision, base]["tokens_per_second"]
                yield f"{shape} {precision}: {what} over {base}, tokens/s", ratio, bar, False
        if program == "2 ranks x 1 thread":
            bar = 0.03 if shape == "55M" else None
            yield f"{shape} {precision}: exposed communication inside a node", row["exposed"], bar, True


def _beside(
    rows: list[Row], ours: tuple[str, ...], speed: float, memory: float
) -> Iterator[tuple[str, float, float | None, bool]]:
    """Yield mudd_core's ratios to the fastest baseline that took the same steps. speed, memory: the targets for 55M."""
    others = [r for r in rows if not r["program"].startswith("2 ranks") and "ZeRO" not in r["program"]]
    others = [r for r in others if not r["other_steps"]]
    if not others:
        return
    best = max(others, key=lambda r: float(r["tokens_per_second"]))
    for mine in (r for r in rows if r["program"] in ours):
        about = f"{mine['shape']}: {mine['program']} over {best['program']}"
        bars = (speed, memory) if mine["shape"] == "55M" else (None, None)
        yield f"{about}, tokens/s", mine["tokens_per_second"] / best["tokens_per_second"], bars[0], False
        yield f"{about}, memory of a process (Pss)", _process(mine) / _process(best), bars[1], True


def _rows(kept: Row, part: str) -> list[Row]:
    cases = (case for name, case in kept.items() if name.split()[0] == part)
    return [row for case in cases for row in case["rows"] if "skipped" not in row]


def _process(row: Row) -> float:
    """Return the memory of the largest rank in MiB; a page that n ranks share contributes 1/n (Pss)."""
    return max(float(one["now"]["pss"]) for one in row["memory_of_ranks"])


def page(kept: Row) -> str:
    """Return the page in Markdown."""
    out = [
        "# Several ranks on one machine",
        "",
        "Written by bench_ranks.py; ratios of one run, programs in turn.",
        "",
    ]
    for part, about in kept.items():
        out.append(
            f"- {part}: {about['cpu']}, flags {about['flags']}, MUDD_MAX_ISA={about['max_isa'] or '-'}, commit "
            f"{about['commit']}, {about['date']}, {about['steps']} steps, {about['seconds']} s"
        )
        out += [f"  - left out: {row['skipped']}" for row in about["rows"] if "skipped" in row]
    out += ["", "| metric | measured | bar | |", "|---|---|---|---|"]
    for metric, value, bar, less in metrics(kept):
        met = "" if bar is None else ("met" if (value <= bar if less else value >= bar) else "MISSED")
        wanted = "" if bar is None else f"{'at most' if less else 'at least'} {bar:g}"
        shown = f"{value:.3f}" if not 0 < value < 5e-4 else f"{value:.1e}"
        out.append(f"| {metric} | {shown} | {wanted} | {met} |")
    speeds = [row for part in (*SPEEDS, "baselines", "cut_baselines") for row in _rows(kept, part)]
    if speeds:
        out += [
            "",
            "| shape | precision | program | ISA | tokens/s | spread | a process, MiB (Pss) | other steps |",
        ]
        out.append("|---|---|---|---|---|---|---|---|")
    for row in speeds:
        out.append(
            f"| {row['shape']} | {row['precision']} | {row['program']} | {row['isa']} | {row['tokens_per_second']:.0f} "
            f"| {row['spread']:.0%} | {_process(row):.0f} | {row['other_steps']} |"
        )
    rows = [*_rows(kept, "memory"), *_rows(kept, "meshes")]
    if memory := [row for row in rows if "plan_node" in row]:
        out += ["", "MiB above the started program, after two steps:", ""]
        out += [
            "| shape | ranks | a rank, private | a rank, shared | node | formula and activations | --plan |"
        ]
        out.append("|---|---|---|---|---|---|---|")
        out += [
            f"| {r['shape']} | {r['ranks']} | {r['private_of_a_rank']:.0f} | {r['shared_of_a_rank']:.0f} "
            f"| {r['node']:.0f} | {_formula(r)} | {r['plan_node']:.0f} |"
            for r in memory
        ]
    if links := _rows(kept, "link"):
        out += [
            "",
            "| two nodes | step, s | a rank alone, s | processor time, s | alone, s | waiting for others "
            "| sent by a rank, MB | hidden | left over, s |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        out += [
            f"| {r['shape']}, {r['program']} | {r['step_s']:.3f} | {r['alone_s']:.3f} | {r['processor_s']:.3f} "
            f"| {r['alone_processor_s']:.3f} | {r['exposed']:.1%} | {r['sent_mb']:.1f} "
            f"| {r.get('hidden', float('nan')):.2f} | {r.get('left_over_s', float('nan')):.3f} |"
            for r in links
        ]
    return "\n".join(out) + "\n"
