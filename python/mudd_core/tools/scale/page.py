"""The tables of docs/scale.md, as `launch.py scale --tables` and `launch.py scale --axes` print them."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.config import load_config, mesh_of
from mudd_core.config.mesh import LIMITS
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.tools.scale.cost import Shape, Training, axes, bubble, least_tokens
from mudd_core.tools.scale.models import shape_of, training_of
from mudd_core.tools.scale.networks import ASSUMED

# Configs of each family, with and without experts.
FAMILIES = (
    ("Transformer++", "tiny.py"),
    ("muP", "mup/tiny.py"),
    ("GPT-2", "gpt2/tiny.py"),
    ("TokenFormer", "tokenformer/tiny.py"),
    ("MUDDFormer", "muddformer/tiny.py"),
    ("Mixtral", "mixtral/tiny.py"),
    ("MUDDFormer with experts", "muddformer/405m_moe.py"),
)
# Column heading -> fields of a two-rank mesh on this axis.
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
# FLOP/s of a training step. The first was measured; the others are estimates.
NODES = (
    ("2 cores, AVX2", 0.15e12, ("1g", "10g")),
    ("64 cores, AVX-512, fp32", 4e12, ("10g", "25g", "100g")),
    ("112 cores, AMX, bf16", 30e12, ("10g", "25g", "100g")),
)
_55M = (
    "model.d_model=512",
    "model.n_layer=12",
    "model.n_head=8",
    "model.d_ff=1408",
    "data.vocab_size=16384",
    "train.seq_len=512",
)
MODELS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("55M", "transformer_pp/small.py", _55M),
    ("GPT-2", "gpt2/gpt2.py", ()),
    ("1.4B", "muddformer/1_4b.py", ()),
    ("8x7B", "mixtral/mixtral87.py", ()),
)
# Model, nodes and network of a column, and thousands of tokens per node and step.
COLUMNS = (("55M", 1, "10g", 16), ("1.4B", 1, "25g", 8), ("1.4B", 2, "10g", 16), ("8x7B", 1, "10g", 8))


def cell(config: str, axis: str) -> str:
    """Return `built`, or the reason why a family refuses an axis, with the alternative."""
    try:
        mesh_of(load_config(config, [*_SMALL, *AXES[axis]]), 2)
    except UserError as error:
        reason = str(error).splitlines()[0].partition(": ")[2] or str(error)
        return f"refused: {reason[reason.find('no experts') :] if 'no experts' in reason else reason}"
    return "built"


def axis_tables() -> str:
    """Return two Markdown tables: the axes of each family, and the meshes that are rejected.

    Families with equal axes share a row. The checks of the meshes decide.
    """
    rows: dict[tuple[str, ...], list[str]] = {}
    for family, config in FAMILIES:
        rows.setdefault(tuple(cell(config, axis) for axis in AXES), []).append(family)
    lines = [f"| family | {' | '.join(AXES)} |", "|" + " --- |" * (len(AXES) + 1)]
    lines += [f"| {', '.join(families)} | {' | '.join(cells)} |" for cells, families in rows.items()]
    lines += ["", "| mesh | refuses | answer |", "| --- | --- | --- |"]
    lines += [f"| {limit.mesh} | {limit.asked} | refused: {limit.why} |" for limit in LIMITS]
    return "\n".join(lines)


def _rows(cells: list[list[str]]) -> str:
    head, *rest = (f"| {' | '.join(row)} |" for row in cells)
    return "\n".join([head, "|" + " --- |" * len(cells[0]), *rest])


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"


def tables() -> str:
    """Return both tables in Markdown."""
    known: dict[str, tuple[Training, Shape]] = {}
    for name, file, words in MODELS:
        config = load_config(file, list(words))
        model = resolved_model(config, expected_vocabulary(config))
        known[name] = training_of(config, model), shape_of(config, model)
    names = [name for name, _, _ in MODELS]
    least = [["node", "network", *(f"{name}" for name in names)]]
    for node, speed, kinds in NODES:
        for kind in kinds:
            numbers = (least_tokens(known[name][0], speed, ASSUMED[kind]) / 1000 for name in names)
            least.append([node, ASSUMED[kind].name, *map(_number, numbers)])
    return f"{_rows(least)}\n\n{_rows(_axis_rows({name: shape for name, (_, shape) in known.items()}))}"


def _axis_rows(shapes: dict[str, Shape]) -> list[list[str]]:
    head, found = ["axis"], []
    for name, node, kind, thousands in COLUMNS:
        head.append(f"{name}, {NODES[node][0]}, {ASSUMED[kind].name}, {thousands}k tokens")
        found.append(
            {row.name: row for row in axes(shapes[name], 1000 * thousands, NODES[node][1], ASSUMED[kind])}
        )
    order = dict.fromkeys(name for column in found[::-1] for name in column)
    rows = [head]
    for name in order:
        cells = [_number(column[name].ratio) if name in column else "-" for column in found]
        row = next(column[name] for column in found if name in column)
        text = name if row.built else f"{name} (not built)"
        rows.append([text + ("" if row.hidden else ", exposed"), *cells])
    rows.append(["idle share of the pipeline", *[f"{bubble():.2f}"] * len(COLUMNS)])
    return rows
