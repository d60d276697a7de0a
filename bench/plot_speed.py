"""Draw a bar chart of training speed compared with PyTorch and JAX, as SVG, from a result of bench/tables.py.

python bench/plot_speed.py bench/results/tables_amd_epyc.json --shape 55M --out docs/speed.svg
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from shapes import JAX_FAMILIES
from tables_page import NAMES, Row, cases, numbers

OURS, TORCH, JAX, INK, SOFT = "#2457a6", "#e08214", "#8c8c8c", "#333333", "#6b6b6b"
LEFT, WIDTH, BAR, GAP, TOP = 120, 760, 14, 16, 84


@dataclass(frozen=True)
class Bar:
    """A measured program. If the speed is 0, it has the reason why the program was not measured."""

    speed: float
    color: str
    words: str


def groups(kept: Row, shape: str, units: str) -> list[tuple[str, list[Bar]]]:
    """Return the name of each measured family of a shape and its bars."""
    found = []
    for ours, programs in cases(kept):
        if ours["shape"] != shape or numbers(ours) != units:
            continue
        torch = max(
            (programs[name] for name in ("eager", "compile") if name in programs),
            key=lambda row: float(row["tokens_per_second"]),
        )
        bars = [_bar(ours, OURS), _bar(torch, TORCH)]
        if "jax" in programs:
            bars.append(_bar(programs["jax"], JAX))
        else:
            family = ours["family"]
            why = (
                "not measured"
                if family in JAX_FAMILIES
                else "not measured: the bench has no JAX program of this family"
            )
            bars.append(Bar(0.0, SOFT, f"JAX {why}"))
        found.append((NAMES[ours["family"]], bars))
    return found


def _bar(row: Row, color: str) -> Bar:
    return Bar(
        row["tokens_per_second"], color, f"{row['tokens_per_second']:,.0f}, spread {row['spread']:.0%}"
    )


def measured(kept: Row, shape: str, units: str) -> str:
    """Return the first and the last day on which the rows of a shape were measured."""
    rows = [
        row
        for ours, programs in cases(kept)
        if ours["shape"] == shape and numbers(ours) == units
        for row in programs.values()
    ]
    days = sorted({str(row["date"])[:10] for row in rows})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def draw(kept: Row, shape: str, units: str) -> str:
    """Return the picture; raise ValueError if nothing of the shape was measured."""
    found = groups(kept, shape, units)
    if not found:
        raise ValueError(f"no rows of {shape} in {units}")
    height = TOP + sum(len(bars) * BAR + GAP for _, bars in found) + 8
    most = max(bar.speed for _, bars in found for bar in bars)
    title = (
        f"Tokens/s of whole training steps, {shape} parameters, {kept['cpu']}, {kept['cores']} cores, {units}"
    )
    spread = "spread: slowest less fastest timed step, over the median"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="16" fill="{INK}">{escape(title)}</text>',
        f'<text x="12" y="44" font-size="12" fill="{SOFT}">'
        f"Measured {measured(kept, shape, units)}; {spread}</text>",
        *_legend(),
    ]
    y = TOP
    for name, bars in found:
        middle = y + len(bars) * BAR / 2 + 4
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end" fill="{INK}">{escape(name)}</text>'
        )
        for bar in bars:
            parts += _drawn(bar, y, most)
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])


def _legend() -> list[str]:
    entries = (("mudd_core", OURS), ("PyTorch 2.13, the faster of eager and compiled", TORCH), ("JAX", JAX))
    parts, x = [], LEFT
    for words, color in entries:
        parts.append(f'<text x="{x}" y="68" fill="{color}">{escape(words)}</text>')
        x += 24 + 7 * len(words)
    return parts


def _drawn(bar: Bar, y: int, most: float) -> list[str]:
    """Return a bar with its value, or in its place the reason why it is missing."""
    if not bar.speed:
        return [
            f'<text x="{LEFT + 4}" y="{y + 11}" font-size="11" fill="{bar.color}">{escape(bar.words)}</text>'
        ]
    wide = (WIDTH - LEFT - 130) * bar.speed / most
    return [
        f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 2}" fill="{bar.color}"/>',
        f'<text x="{LEFT + wide + 6:.1f}" y="{y + 11}" font-size="12" fill="{INK}">{escape(bar.words)}</text>',
    ]


def main() -> None:
    """Read a saved result and write the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path, help="a file bench/results/tables_*.json")
    parser.add_argument("--shape", default="55M", help="9M, 55M or 162M; default 55M")
    parser.add_argument("--numbers", default="fp32, AVX2", help="type and level as the table names them")
    parser.add_argument("--out", type=Path, required=True, help="the SVG file to write")
    asked = parser.parse_args()
    asked.out.write_text(draw(json.loads(asked.results.read_text()), asked.shape, asked.numbers))
    print(f"wrote {asked.out}")


if __name__ == "__main__":
    main()
