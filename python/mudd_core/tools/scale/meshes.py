"""The supported meshes of a cluster, ranked by predicted step time and memory, and the best command (docs/scale.md)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.surroundings import typed_program
from mudd_core.base.units import bytes_text
from mudd_core.config import Config, MeshConfig
from mudd_core.config.train import MICRO_BATCH_SIZE
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.mesh_search import Choice
from mudd_core.tools.scale import cost


@dataclass(frozen=True)
class Ranked:
    """A mesh and the cost of its step.

    rank_bytes: includes the program. sent: bytes that a node sends. fits: into a node.
    """

    choice: Choice
    rank_bytes: int
    step: cost.Step
    sent: float
    fits: bool


def layout_of(mesh: MeshConfig, ranks: int) -> cost.Layout:
    """Return the mesh as the cost formulas need it. ranks: the ranks per node."""
    return cost.Layout(mesh.zero, mesh.expert, ranks, mesh.gradient_bytes)


def ranked(
    plan: MemoryPlan,
    training: cost.Training,
    tokens: float,
    speed: float,
    network: cost.Network,
    program: int,
    node_memory: int,
) -> list[Ranked]:
    """Rank the supported meshes: first the ones that fit, then the fastest, then the ones that send the least.

    Step times that are equal when printed are equally fast, because communication that computation hides costs nothing.

    tokens: tokens of a node in a step. speed: FLOP/s of a node. program: bytes of the program per rank. node_memory:
    bytes of a node; 0: unlimited.
    """
    place, found = plan.place, list[Ranked]()
    nodes = place.nodes
    for choice in plan.choices():
        mesh = choice.config.mesh
        layout = layout_of(mesh, place.on_a_node)
        step = cost.step(training, tokens, speed, network, nodes, layout)
        wire = cost.wire(training, tokens, nodes, layout)
        sent = wire.sums + wire.gathers + wire.exchange
        rank = choice.rank_bytes + program
        fits = not node_memory or place.on_a_node * rank <= node_memory
        found.append(Ranked(choice, rank, step, sent, fits))

    def order(row: Ranked) -> tuple[bool, float, float, int]:
        return not row.fits, float(_shown(row.step.seconds)), row.sent, row.choice.node_bytes

    return sorted(found, key=order)


def _shown(seconds: float) -> str:
    return f"{seconds:.4g}"


def lines(
    rows: Sequence[Ranked], asked: Config, name: str, words: Sequence[str], node_memory: int
) -> list[str]:
    """Return the table of ranked meshes, and the command for the first one.

    asked: the user's config, with its name and overrides.
    """
    place = rows[0].choice.place
    nodes = place.nodes
    found = [
        f"Meshes of {nodes:,} node{'s' * (nodes > 1)} of {place.on_a_node}, the best first (memory and traffic do "
        "not depend on how data and fsdp share the ranks):",
        f"  {'mesh':<28} {'step s':>9} {'exposed':>8} {'a rank':>10} {'a node':>10}",
    ]
    for row in rows:
        choice = row.choice
        note = "" if row.fits else f"  more than {bytes_text(node_memory)} a node"
        found.append(
            f"  {choice.words:<28} {_shown(row.step.seconds):>9} {100 * row.step.share:>7.1f}% "
            f"{bytes_text(row.rank_bytes):>10} {bytes_text(place.on_a_node * row.rank_bytes):>10}{note}"
        )
    best = rows[0].choice
    if not rows[0].fits:
        smaller = "" if MICRO_BATCH_SIZE in asked.bound_fields else f", or a smaller {MICRO_BATCH_SIZE}"
        return [*found, f"no mesh fits: use more nodes (--nodes){smaller}"]
    hosts = f" (HOSTS: the names of the {nodes:,} machines, separated by commas)" if nodes > 1 else ""
    return [*found, f"best{hosts}:", f"  {_command(best, asked, name, words)}"]


def _command(choice: Choice, asked: Config, name: str, words: Sequence[str]) -> str:
    """Return the command that trains with a mesh; HOSTS is a placeholder for the machines' names."""
    place, train = choice.place, choice.config.train
    more = [
        f"train.{field}={getattr(train, field)}"
        for field in ("batch_size", "logical_shards")
        if getattr(train, field) != getattr(asked.train, field)
    ]
    own = choice.arguments(words, asked.mesh)
    line = shlex.join([*typed_program(), f"--config={name}", *own, *more, f"--ranks={place.world}"])
    return line + (" --hosts=$HOSTS" if place.nodes > 1 else "")
