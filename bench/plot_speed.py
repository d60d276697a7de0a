"""A bar chart of training speed compared with PyTorch and JAX as an SVG picture, from a kept result of bench/tables.py.

python bench/plot_speed.py bench/results/tables_amd_epyc.json --shape 55M --out docs/speed.svg
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from xml.sax.saxutils import escape

from tables_page import NAMES, Row, cases, numbers

OURS, TORCH, JAX, INK = "#2457a6", "#e08214", "#8c8c8c", "#333333"
LEFT, WIDTH, BAR, GAP, TOP = 120, 760, 14, 16, 62


def groups(kept: Row, shape: str, units: str) -> list[tuple[str, list[tuple[float, str]]]]:
    """Family and its bars (tokens/s, colour) for each measured family of a shape."""
    found = []
    for ours, programs in cases(kept):
        if ours["shape"] != shape or numbers(ours) != units:
            continue
        baselines = [programs[name]["tokens_per_second"] for name in ("eager", "compile") if name in programs]
        bars = [(ours["tokens_per_second"], OURS), (max(baselines), TORCH)]
        if "jax" in programs:
            bars.append((programs["jax"]["tokens_per_second"], JAX))
        found.append((NAMES[ours["family"]], bars))
    return found


def draw(kept: Row, shape: str, units: str) -> str:
    """The picture; ValueError where nothing of the shape was measured."""
    found = groups(kept, shape, units)
    if not found:
        raise ValueError(f"no rows of {shape} in {units}")
    height = TOP + sum(len(bars) * BAR + GAP for _, bars in found) + 8
    most = max(speed for _, bars in found for speed, _ in bars)
    title = (
        f"Tokens/s of whole training steps, {shape} parameters, {kept['cpu']}, {kept['cores']} cores, {units}"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="12" y="24" font-size="16" fill="{INK}">{escape(title)}</text>',
    ]
    legend = (("mudd_core", OURS), ("PyTorch 2.13, the faster of eager and compiled", TORCH), ("JAX", JAX))
    x = LEFT
    for words, color in legend:
        parts.append(f'<text x="{x}" y="46" fill="{color}">{escape(words)}</text>')
        x += 24 + 7 * len(words)
    y = TOP
    for name, bars in found:
        middle = y + len(bars) * BAR / 2 + 4
        parts.append(
            f'<text x="{LEFT - 10}" y="{middle:.0f}" text-anchor="end" fill="{INK}">{escape(name)}</text>'
        )
        for speed, color in bars:
            wide = (WIDTH - LEFT - 80) * speed / most
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{wide:.1f}" height="{BAR - 2}" fill="{color}"/>')
            parts.append(
                f'<text x="{LEFT + wide + 6:.1f}" y="{y + 11}" font-size="12" fill="{INK}">{speed:,.0f}</text>'
            )
            y += BAR
        y += GAP
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    """Reads a kept result, writes the picture."""
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
