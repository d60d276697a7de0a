"""Which axes of a mesh each family has, asked of the checks themselves, and what a mesh refuses: `scale --axes`."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config import load_config, mesh_of
from mudd_core.config.mesh import LIMITS

# A config of each family, with experts and without.
FAMILIES = (
    ("Transformer++", "tiny.py"),
    ("muP", "mup/tiny.py"),
    ("GPT-2", "gpt2/tiny.py"),
    ("TokenFormer", "tokenformer/tiny.py"),
    ("MUDDFormer", "muddformer/tiny.py"),
    ("Mixtral", "mixtral/tiny.py"),
    ("MUDDFormer with experts", "muddformer/405m_moe.py"),
)
# The head of a column, and the fields of a mesh of two ranks that is on this axis.
AXES: dict[str, tuple[str, ...]] = {
    "data, fsdp: zero 1": (),
    "zero 3": ("mesh.zero=3",),
    "expert": ("mesh.expert=2",),
    "expert, zero 3": ("mesh.expert=2", "mesh.zero=3"),
    "pipeline": ("mesh.pipeline=2",),
    "context": ("mesh.context=2",),
    "tensor": ("mesh.tensor=2",),
}
_SMALL = ("train.batch_size=8", "train.logical_shards=8", "train.micro_batch_size=0")


def cell(config: str, axis: str) -> str:
    """`built`, or the reason why a family refuses an axis and what to take for it."""
    try:
        mesh_of(load_config(config, [*_SMALL, *AXES[axis]]), 2)
    except UserError as error:
        reason = str(error).splitlines()[0].partition(": ")[2] or str(error)
        return f"refused: {reason[reason.find('no experts') :] if 'no experts' in reason else reason}"
    return "built"


def table() -> str:
    """Both tables in Markdown: the axes of each family, where those with equal rows share one, and what they refuse."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for family, config in FAMILIES:
        rows.setdefault(tuple(cell(config, axis) for axis in AXES), []).append(family)
    lines = [f"| family | {' | '.join(AXES)} |", "|" + " --- |" * (len(AXES) + 1)]
    lines += [f"| {', '.join(families)} | {' | '.join(cells)} |" for cells, families in rows.items()]
    lines += ["", "| mesh | refuses | answer |", "| --- | --- | --- |"]
    lines += [f"| {limit.mesh} | {limit.asked} | refused: {limit.why} |" for limit in LIMITS]
    return "\n".join(lines)
