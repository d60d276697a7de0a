"""The report of `launch.py scale`."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.base.units import bytes_text, flops_text
from mudd_core.config import Config, ModelConfig, mesh_of
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.place import Place
from mudd_core.tools.scale import cost
from mudd_core.tools.scale.cost import axes
from mudd_core.tools.scale.meshes import layout_of, lines, ranked
from mudd_core.tools.scale.models import shape_of

_WORTH = 0.7  # fraction of linear speedup below which more nodes are not recommended


@dataclass(frozen=True)
class Cluster:
    """The requested nodes, each with `ranks` ranks. source: describes the origin of `speed`.

    program: bytes of the program per rank. memory: bytes of a node; 0: unlimited. config, `words`: as the user wrote
    them, for the command of the best mesh.
    """

    nodes: int
    ranks: int
    speed: float
    source: str
    program: int = 0
    memory: int = 0
    config: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """The prediction for a number of nodes. efficiency: tokens/s relative to nodes that send no messages."""

    nodes: int
    batch: int
    step: cost.Step
    efficiency: float
    rank_bytes: int
    mesh: str


def report(
    config: Config, shape: ModelConfig, training: cost.Training, network: cost.Network, cluster: Cluster
) -> str:
    """Return a row for each power of two of nodes, the best row, and the traffic of every axis."""
    _require_world(config, cluster)
    found = (_row(config, shape, training, network, cluster, nodes) for nodes in _counts(cluster.nodes))
    rows = [row for row in found if row is not None]
    length, last = config.train.seq_len, rows[-1]
    tokens = last.batch * length / last.nodes
    layout = layout_of(config.mesh, cluster.ranks)
    least = cost.least_tokens(training, cluster.speed, network, layout)
    text = [
        f"{config.name} on up to {_of_nodes(cluster.nodes)} of {cluster.ranks} rank{'s' * (cluster.ranks > 1)}, "
        f"{network.name}: {1e6 * network.latency:.3g} us, {network.bandwidth / 1e9:.3g} GB/s a node",
        f"a node reaches {flops_text(cluster.speed)}/s ({cluster.source})",
        f"{training.weights:,} weights that train, {flops_text(training.flops)} a token",
        "",
        f"{'nodes':>6} {'sequences':>9} {'step s':>9} {'exposed':>8} {'tokens/s':>12} {'of linear':>9} "
        f"{'a rank':>10} {'a node':>10}",
        *(_line(row, length, cluster.ranks) for row in rows),
        "",
        *_advice(rows, config, least, tokens),
        "",
        *_mesh_lines(config, shape, training, network, cluster),
        "",
        f"Communication over computation at {_of_nodes(last.nodes)}, {tokens:,.0f} tokens a node (docs/scale.md, 3):",
    ]
    for axis in axes(shape_of(config, shape), tokens, cluster.speed, network, layout):
        note = "" if axis.built else "not built" if axis.hidden else "not built; exposed"
        text.append(f"  {axis.name:<14} {axis.ratio:8.3g}  {note}".rstrip())
    text += [
        "A prediction: it knows no stragglers, no routing, no noise, no other traffic,",
        "and counts all rows of an embedding table, though only the gradients of rows that are read are sent.",
    ]
    return "\n".join(text)


def _mesh_lines(
    config: Config, shape: ModelConfig, training: cost.Training, network: cost.Network, cluster: Cluster
) -> list[str]:
    """Return the supported meshes of all the nodes, the best first."""
    world = cluster.nodes * cluster.ranks
    place, wide = Place(world, cluster.ranks), _on(config, world)
    training, tokens = _of_rank(training, wide, place)
    plan = MemoryPlan.of(shape, wide, place)
    rows = ranked(plan, training, tokens, cluster.speed, network, cluster.program, cluster.memory)
    return lines(rows, config, cluster.config, cluster.words, cluster.memory)


def _of_rank(training: cost.Training, wide: Config, place: Place) -> tuple[cost.Training, float]:
    """Return the training with the micro-batches of a rank, and the tokens of the node with the most sequences."""
    of_rank = place.config_of_rank(wide).train
    runs = -(-of_rank.batch_size // (of_rank.micro_batch_size or of_rank.batch_size))
    tokens = math.ceil(wide.train.batch_size * place.on_a_node / place.world) * wide.train.seq_len
    return dataclasses.replace(training, runs=runs), tokens


def _of_nodes(count: int) -> str:
    return f"{count:,} node{'s' * (count > 1)}"


def _require_world(config: Config, cluster: Cluster) -> None:
    """Raise UserError if this number of ranks allows no batch size and no number of shards."""
    world = cluster.nodes * cluster.ranks
    if config.mesh.any_world or world == _power_from(world):
        return
    raise UserError(
        f"[scale] --nodes: {cluster.nodes} x {cluster.ranks} = {world} ranks divide no number of "
        f"logical shards, which is a power of two: use {_power_from(world) // 2} or "
        f"{_power_from(world)} ranks, or set mesh.any_world=true (results then depend on the number "
        "of ranks)"
    )


def _power_from(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _counts(nodes: int) -> list[int]:
    """Return 1, 2, 4 and so on up to the requested number of nodes, which is the last."""
    return sorted({1 << power for power in range(nodes.bit_length())} | {nodes})


def _row(
    config: Config,
    shape: ModelConfig,
    training: cost.Training,
    network: cost.Network,
    cluster: Cluster,
    nodes: int,
) -> Row | None:
    """Return the row for this number of nodes; None if the mesh does not fit fewer nodes than requested."""
    world = nodes * cluster.ranks
    place = Place(world, cluster.ranks)
    wide = _on(config, world)
    try:
        mesh = str(mesh_of(wide, world))
    except UserError as error:
        if nodes < cluster.nodes:
            return None
        raise UserError(f"{error}\n[scale] --nodes {nodes} x {cluster.ranks} ranks is such a world") from None
    batch = wide.train.batch_size
    training, tokens = _of_rank(training, wide, place)
    layout = layout_of(config.mesh, cluster.ranks)
    found = cost.step(training, tokens, cluster.speed, network, nodes, layout)
    alone = training.flops * batch * config.train.seq_len / nodes / cluster.speed
    memory = cluster.program + sum(MemoryPlan.of(shape, wide, place).bytes().values())
    return Row(nodes, batch, found, alone / found.seconds, memory, mesh)


def _on(config: Config, world: int) -> Config:
    """Return the config with at least as many sequences and shards as `world` ranks need."""
    train = config.train
    batch = max(train.batch_size, world)
    shards = max(train.logical_shards, _power_from(world))
    evaluated = config.eval.batch_size or train.batch_size
    return dataclasses.replace(
        config,
        train=dataclasses.replace(train, batch_size=batch, logical_shards=shards),
        eval=dataclasses.replace(config.eval, batch_size=evaluated),
    )


def _line(row: Row, length: int, ranks: int) -> str:
    rate = row.batch * length / row.step.seconds
    return (
        f"{row.nodes:>6,} {row.batch:>9,} {row.step.seconds:>9.4g} {100 * row.step.share:>7.1f}% {rate:>12,.0f} "
        f"{100 * row.efficiency:>8.1f}% {bytes_text(row.rank_bytes):>10} {bytes_text(ranks * row.rank_bytes):>10}"
    )


def _advice(rows: list[Row], config: Config, least: float, tokens: float) -> list[str]:
    """Return the largest efficient number of nodes, and the parts of the last row's time."""
    worth = [row for row in rows if row.efficiency >= _WORTH]
    last, length = rows[-1], config.train.seq_len
    text = [
        f"best: {_of_nodes(worth[-1].nodes)}, mesh {worth[-1].mesh}, zero {config.mesh.zero}: the most that keep "
        f"{100 * _WORTH:.0f} % of linear; every data x fsdp sends the same number of bytes"
        if worth
        else f"none of these keeps {100 * _WORTH:.0f} % of linear"
    ]
    if last.nodes > 1:
        step = last.step
        text.append(
            f"at {last.nodes:,}: computation {step.compute:.4g} s, sums {step.sums:.4g} s during backward, "
            f"gather {step.gather:.4g} s during forward, totals {step.totals:.4g} s, exposed {step.exposed:.4g} s"
        )
    if tokens < least:
        need = math.ceil(least / length)
        text.append(
            f"{least:,.0f} tokens a node and step ({need:,} sequences, train.batch_size={need * last.nodes}) would "
            f"bring communication to {cost.HIDDEN_UP_TO:g} of computation"
        )
    if last.batch > config.train.batch_size:
        text.append(
            f"the config has {config.train.batch_size:,} sequences a step, fewer than ranks: a "
            "larger batch is another training"
        )
    return text
