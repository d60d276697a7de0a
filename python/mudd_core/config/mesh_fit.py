"""The mesh of a job: the requested mesh for the actual number of ranks, and errors if they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.families import mixture_of
from mudd_core.config.mesh import LARGEST_FSDP, NOT_BUILT, MeshConfig
from mudd_core.config.pipelines import spec_of
from mudd_core.config.schema import Sections

UNIT = 4096  # elements of a parameter that are never split (contracts 25)


@dataclass(frozen=True)
class Mesh:
    """The mesh of a started job."""

    data: int
    fsdp: int
    expert: int = 1  # neighbouring ranks that share the experts

    @property
    def world(self) -> int:
        """Total number of ranks."""
        return self.data * self.fsdp

    def __str__(self) -> str:
        experts = f", experts on {self.expert} ranks each" if self.expert > 1 else ""
        return f"data {self.data} x fsdp {self.fsdp}{experts}"


def mesh_of(config: Sections, world: int) -> Mesh:
    """Return the mesh of the config over `world` ranks; raise UserError if they do not fit."""
    train = config.train
    if world > 1 and (fault := _unequal_targets(config, world)):
        raise UserError(f"[mesh] loss.normalize=micro_mean over {world} ranks {fault}")
    found = fit_mesh(config.mesh, world, train.shard_count(), train.logical_shards, train.batch_size)
    require_runs(config, world)
    return found


def require_runs(config: Sections, world: int) -> None:
    """Raise UserError for micro-batches if ranks have different numbers of samples (mesh.any_world)."""
    train = config.train
    if 0 < train.micro_batch_size < train.batch_size and train.shard_count() % world:
        raise UserError(
            f"[mesh] any_world: {world} ranks have different numbers of the {train.batch_size} "
            "sequences of a step, so no micro-batch size fits: set train.micro_batch_size=0"
        )


def _unequal_targets(config: Sections, world: int) -> str:
    """Return the reason why micro-batches may have different numbers of counted targets; empty if they cannot.

    micro_mean cannot weight such micro-batches. For a user's reader the numbers are unknown before training, so the
    first such step ends the run.
    """
    if config.loss.normalize != "micro_mean":
        return ""
    if config.train.batch_size % world:
        return (
            f"needs a train.batch_size divisible by the number of ranks, got {config.train.batch_size}; "
            "use loss.normalize=valid"
        )
    if spec_of(config.data.pipeline).leaves_out:
        return (
            "needs the same number of targets in each micro-batch, and sequences of "
            f"data.pipeline={config.data.pipeline} may have fewer; use loss.normalize=valid, or one "
            "process"
        )
    return ""


def mesh_faults(config: Sections) -> list[str]:
    """Return the faults of a mesh that no number of ranks can satisfy, one line each."""
    mesh, faults = config.mesh, list[str]()
    for name in ("data", "fsdp"):
        if getattr(mesh, name) == 0:
            faults.append(f"[mesh] {name}: expected -1 (all remaining ranks) or at least 1, got 0")
    if mesh.zero == 2:
        faults.append(
            "[mesh] zero=2 is not implemented: compared with zero=1 it saves 4 bytes per parameter "
            "and costs a reduce-scatter of the gradients in each graph run; use mesh.zero=1, or "
            "mesh.zero=3, which shards weights, too (docs/parallel.md)"
        )
    if 0 < mesh.expert_room < 1:
        faults.append(f"[mesh] expert_room: expected 0 or at least 1, an even load, got {mesh.expert_room}")
    for name, reason in NOT_BUILT.items():
        if (value := getattr(mesh, name)) > 1:
            faults.append(
                f"[mesh] {name}={value}: {reason}; use mesh.{name}=1 mesh.fsdp={_wider(mesh, value)}"
            )
    return faults + _wire_faults(mesh) + _expert_faults(config)


def _wire_faults(mesh: MeshConfig) -> list[str]:
    """Return the faults of gradients in bf16, which must be sent once a step for bits of the config alone."""
    if mesh.wire == "fp32":
        return []
    faults = list[str]()
    if mesh.zero == 3:
        faults.append(
            "[mesh] wire=bf16: with zero=3 the gradients of every micro-batch are sent, so rounding them would make "
            "the results depend on train.micro_batch_size; use mesh.wire=fp32, or mesh.zero=1"
        )
    if mesh.expert > 1:
        faults.append(
            f"[mesh] wire=bf16: not with expert={mesh.expert}, where other ranks sum the gradients of experts; use "
            "mesh.wire=fp32, or mesh.expert=1"
        )
    return faults


def _wider(mesh: MeshConfig, ranks: int) -> int:
    """Return mesh.fsdp with the ranks of a rejected axis, as the nearest mesh that works."""
    return ranks * mesh.fsdp if mesh.fsdp > 1 else -1


def _expert_faults(config: Sections) -> list[str]:
    """Return the faults of sharding this model's experts across the ranks of mesh.expert."""
    ranks, family = config.mesh.expert, config.model.family
    if ranks == 1:
        return []
    if (mixture := mixture_of(config.model)) is None:
        way_out = "set model.n_expert, or use" if hasattr(config.model, "n_expert") else "use"
        return [f"[mesh] expert={ranks}: {family} has no experts; {way_out} mesh.expert=1 mesh.fsdp=-1"]
    # The sizes of one layer and of one expert's matrix.
    experts, numbers = mixture.n_expert, mixture.d_model * mixture.d_ff

    def fits(size: int) -> bool:
        return size == 1 or experts % size == experts // size * numbers % UNIT == 0

    fitting = or_list([size for size in range(1, experts + 1) if fits(size)])
    if experts % ranks:
        return [
            f"[mesh] expert={ranks} does not divide the {experts} experts of a layer; use mesh.expert={fitting}"
        ]
    if not fits(ranks):
        return [
            f"[mesh] expert={ranks}: the {experts // ranks} experts of a rank have "
            f"{experts // ranks * numbers} elements in each of their matrices; expected a multiple "
            f"of {UNIT}, which keeps the bits of one process; use mesh.expert={fitting}"
        ]
    return []


def or_list(numbers: Sequence[int]) -> str:
    """Return numbers as alternatives: `1, 2 or 4`."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last


def worlds(shards: int) -> list[int]:
    """Return the numbers of ranks that give the bits of one process: the divisors of the number of logical shards."""
    return [1 << power for power in range(shards.bit_length())]


def fit_mesh(mesh: MeshConfig, world: int, shards: int, logical_shards: int, batch_size: int) -> Mesh:
    """Return the mesh of `world` ranks; raise UserError if mesh, ranks and batch do not fit together.

    shards: logical shards in use: the largest power of two up to logical_shards and batch_size.
    """
    _refuse_world(mesh, world, shards, logical_shards, batch_size)
    data, fsdp = mesh.data, mesh.fsdp
    if data == -1 and fsdp == -1:
        fsdp = max(size for size in range(1, min(world, LARGEST_FSDP) + 1) if world % size == 0)
    given, size = ("fsdp", fsdp) if data == -1 else ("data", data)
    if -1 in (data, fsdp) and world % size:
        ranks = "rank that was" if world == 1 else f"{world} ranks that were"
        raise UserError(
            f"[mesh] {given} {size} does not divide the {ranks} started: "
            f"{_start(mesh, size, shards)}set mesh.{given}=-1, which uses the remaining ranks"
        )
    found = Mesh(world // fsdp if data == -1 else data, world // data if fsdp == -1 else fsdp, mesh.expert)
    if found.world != world:
        started = "1 rank was" if world == 1 else f"{world} ranks were"
        left = [f"mesh.{name}=-1" for name, other in (("data", fsdp), ("fsdp", data)) if world % other == 0]
        raise UserError(
            f"[mesh] {found} = {found.world}, but {started} started: "
            f"{_start(mesh, found.world, shards)}set "
            f"{left[0] if left else 'mesh.data=-1 mesh.fsdp=-1'}, which uses the remaining ranks"
        )
    _refuse_experts(mesh.expert, world, shards)
    return found


def _start(mesh: MeshConfig, world: int, shards: int) -> str:
    """Return "start --ranks=N, or " for a message if this number of ranks would work, else an empty string."""
    fits = world <= shards and shards % world == world % mesh.expert == 0
    return f"start --ranks={world}, or " if fits else ""


def _refuse_experts(expert: int, world: int, shards: int) -> None:
    """Raise UserError if the ranks cannot form groups of `expert` ranks for the experts."""
    if world % expert:
        started = "1 rank was" if world == 1 else f"{world} ranks were"
        raise UserError(
            f"[mesh] expert={expert} does not divide the ranks: {started} started; start a multiple of {expert}, or "
            "use mesh.expert=1"
        )
    if expert > 1 and shards % world:
        fitting = [number for number in worlds(shards) if number % expert == 0]
        raise UserError(
            f"[mesh] expert={expert} needs a number of ranks that divides the {shards} logical shards; "
            f"{f'start {or_list(fitting)}' if fitting else 'use mesh.expert=1'}"
        )


def _refuse_world(mesh: MeshConfig, world: int, shards: int, logical_shards: int, batch_size: int) -> None:
    """Raise UserError if a rank would have no shard, or if the order of sums would change without any_world."""
    fit = or_list(worlds(shards))
    if world > batch_size:
        raise UserError(
            f"[mesh] {world} ranks are more than the sequences of a step, "
            f"train.batch_size={batch_size}: start {fit}, or start a run with "
            f"train.batch_size={world} or more"
        )
    if world > shards and not mesh.any_world:
        raise UserError(
            f"[mesh] {world} ranks are more than the {shards} shard{'s' * (shards > 1)} of "
            f"train.logical_shards={logical_shards} and train.batch_size={batch_size}: start {fit}, or start a run "
            "with more shards"
        )
    if shards % world and not mesh.any_world:
        name = f"train.logical_shards={shards}"
        if shards != logical_shards:
            name = f"the {shards} shards of train.batch_size={batch_size}"
        raise UserError(
            f"[mesh] {world} ranks do not divide {name}: start {fit}, or set mesh.any_world=true "
            "(results then depend on the number of ranks)"
        )
