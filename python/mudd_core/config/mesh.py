"""Several ranks: how the processes of a run share its work (docs/parallel.md), and how they talk."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.fields import opt

LARGEST_FSDP = 64  # of the default mesh: more ranks than this are data
MOST_RANKS = 1024  # logical shards of a run, of which each rank has one at least
UNIT = 4096  # numbers of a parameter that have one owner (contracts 25)

# Axes that are not built, each with the reason.
NOT_BUILT = {
    "pipeline": "pipeline stages are not built yet",
    "context": "cutting a sequence moves 1.6 to 29 times what its computation takes (docs/scale.md)",
    "tensor": "cutting inside layers takes 8 transfers of T x D a layer, none behind compute (docs/scale.md)",
}


@dataclass(frozen=True)
class MeshConfig:
    """How the ranks (processes) of a run share its work; world = data x fsdp. Only any_world changes numbers."""

    data: int = opt(
        -1,
        "groups of fsdp ranks, each of which may hold all of the optimizer's state; -1 = what is left",
        "ranks",
        low=-1,
        high=MOST_RANKS,
        free=True,
    )
    fsdp: int = opt(
        -1,
        "ranks that the optimizer's state is cut over; -1 = what mesh.data leaves, and where that is -1 too the "
        f"largest divisor of the world up to {LARGEST_FSDP}",
        "ranks",
        low=-1,
        high=MOST_RANKS,
        free=True,
    )
    expert: int = opt(
        1,
        "neighbours among the ranks that hold the experts of a mixture between them; divides their number and n_expert",
        "ranks",
        low=1,
        high=MOST_RANKS,
        free=True,
    )
    expert_room: float = opt(
        0.0,
        "rows of tokens that a rank of mesh.expert reserves memory for in each layer, as a multiple of an even load; "
        "a step that needs more ends the run; 0 = memory for twice an even load, and more while the machine has it",
        low=0.0,
        free=True,
    )
    pipeline: int = opt(1, "stages that the layers are cut into; not built yet", "ranks", low=1, free=True)
    context: int = opt(1, "ranks that a sequence is cut over; not built yet", "ranks", low=1, free=True)
    tensor: int = opt(1, "ranks that a layer is cut over; not built", "ranks", low=1, free=True)
    zero: int = opt(
        1,
        "what is cut over the ranks: 1 the optimizer's state; 3 gradients and weights too, which graphs gather layer "
        "by layer (ranks of a node share one copy of the weights in any case)",
        "level",
        low=1,
        high=3,
        free=True,
    )
    any_world: bool = opt(
        False,
        "allow a number of ranks that does not divide train.logical_shards; bits then depend on the world",
        free=True,
    )

    def cuts_weights(self, world: int) -> bool:
        """Whether so many ranks gather weights for each other, and so run each graph together."""
        return self.zero == 3 and world > 1

    def runs_together(self, world: int) -> bool:
        """Whether so many ranks need each other's weights, and so run each graph together."""
        return self.cuts_weights(world) or (self.expert > 1 and world > 1)

    def require_readers(self, world: int) -> None:
        """UserError where so many ranks cannot hold a saved model between them; only its experts need a number."""
        if world % self.expert:
            raise UserError(
                f"[mesh] expert={self.expert} does not divide the {world} ranks that were started; start a multiple "
                f"of {self.expert}, or set mesh.expert=1"
            )


@dataclass(frozen=True)
class DistConfig:
    """How the ranks of a run talk; no field changes a number."""

    node: str = opt(
        "host",
        "host: ranks of one machine share weights and gradients in memory; rank: each rank is a node of its "
        "own and only messages are used",
        choices=("host", "rank"),
        free=True,
    )
    isa: str = opt(
        "common",
        "only for train.precision=bf16, whose bits are those of the CPU's unit: common: all ranks use the best unit "
        "that all have; same: ranks with different units are refused",
        choices=("common", "same"),
        free=True,
    )
    hang_timeout: float = opt(
        0.0,
        "end the job with exit code 70 when a rank shows no sign of life for so long; 0 = 300, or 20 times the "
        "median step where that is longer",
        "seconds",
        low=0.0,
        free=True,
    )
    join_timeout: float = opt(
        60.0,
        "end the job with exit code 2 when a rank has not joined the others for so long at the start; give it as "
        "an argument",
        "seconds",
        low=0.1,
        free=True,
    )
    compare_every: int = opt(
        500,
        "steps between two comparisons of the weights that several nodes hold; a difference ends the job with "
        "exit code 70; 0 = never",
        "steps",
        low=0,
        free=True,
    )
    debug: bool = opt(
        False, "compare the places in the code that the ranks' messages come from (slow)", free=True
    )


@dataclass(frozen=True)
class Mesh:
    """The mesh of a started job."""

    data: int
    fsdp: int
    expert: int = 1  # neighbours among them

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.data * self.fsdp

    def __str__(self) -> str:
        experts = f", experts on {self.expert} ranks each" if self.expert > 1 else ""
        return f"data {self.data} x fsdp {self.fsdp}{experts}"


def mesh_faults(mesh: MeshConfig) -> list[str]:
    """What the mesh asks for and no world can give, one line each."""
    faults = []
    for name in ("data", "fsdp"):
        if getattr(mesh, name) == 0:
            faults.append(f"[mesh] {name}: expected -1 (what is left) or at least 1, got 0")
    if mesh.zero == 2:
        faults.append(
            "[mesh] zero=2 is not built: beside zero=1 it saves 4 bytes a parameter and costs a reduce-scatter of the "
            "gradients in each graph run; use zero=1, or zero=3, which cuts the weights, too (docs/parallel.md)"
        )
    if 0 < mesh.expert_room < 1:
        faults.append(f"[mesh] expert_room: expected 0 or at least 1, an even load, got {mesh.expert_room}")
    for name, reason in NOT_BUILT.items():
        if (value := getattr(mesh, name)) > 1:
            faults.append(f"[mesh] {name}={value}: {reason}; use {name}=1 mesh.fsdp={_wider(mesh, value)}")
    return faults


def _wider(mesh: MeshConfig, ranks: int) -> int:
    """mesh.fsdp with the ranks of an axis that is refused; the nearest mesh that works."""
    return ranks * mesh.fsdp if mesh.fsdp > 1 else -1


def expert_faults(ranks: int, family: str, experts: int, numbers: int) -> list[str]:
    """What is wrong with a model whose experts so many ranks hold between them.

    experts: of a layer of the model; 0: it has none. numbers: of an expert's smallest matrix.
    """
    if ranks == 1:
        return []
    if experts == 0:
        return [f"[mesh] expert={ranks}: {family} has no experts; use mesh.fsdp"]
    if experts % ranks:
        fitting = ", ".join(str(size) for size in range(1, experts + 1) if experts % size == 0)
        return [f"[mesh] expert={ranks} does not divide the {experts} experts of a layer; use {fitting}"]
    if experts // ranks * numbers % UNIT:
        return [
            f"[mesh] expert={ranks}: the {experts // ranks} experts of a rank have {experts // ranks * numbers} "
            f"numbers in each of their matrices; expected a multiple of {UNIT}, so that sums keep the bits of one "
            "process; use expert=1"
        ]
    return []


def worlds(shards: int) -> list[int]:
    """Numbers of ranks that have the bits of one process: the divisors of the number of logical shards."""
    return [1 << power for power in range(shards.bit_length())]


def fit_mesh(mesh: MeshConfig, world: int, shards: int, logical_shards: int, batch_size: int) -> Mesh:
    """The mesh of so many ranks; UserError where it does not fit them, or they do not fit the batch.

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
            f"[mesh] {given} {size} does not divide the {ranks} started: start a multiple of {size} "
            f"(--ranks={size}), or set mesh.{given}=-1, which takes what is left"
        )
    found = Mesh(world // fsdp if data == -1 else data, world // data if fsdp == -1 else fsdp, mesh.expert)
    if found.world != world:
        started = "1 rank was" if world == 1 else f"{world} ranks were"
        raise UserError(
            f"[mesh] {found} = {found.world}, but {started} started: start --ranks={found.world}, or set mesh.data=-1, "
            "which takes what is left"
        )
    _refuse_experts(mesh.expert, world, shards)
    return found


def _refuse_experts(expert: int, world: int, shards: int) -> None:
    """UserError for ranks that cannot hold the experts in groups of so many."""
    if world % expert:
        started = "1 rank was" if world == 1 else f"{world} ranks were"
        raise UserError(
            f"[mesh] expert={expert} does not divide the ranks: {started} started; start a multiple of {expert}, or "
            "use expert=1"
        )
    if expert > 1 and shards % world:
        raise UserError(
            f"[mesh] expert={expert} needs a number of ranks that divides the {shards} logical shards; start one of "
            f"{', '.join(str(number) for number in worlds(shards) if number % expert == 0)}"
        )


def _refuse_world(mesh: MeshConfig, world: int, shards: int, logical_shards: int, batch_size: int) -> None:
    """UserError for ranks that would have no shard, or that change the order of sums without leave."""
    numbers = [str(number) for number in worlds(shards)]
    fit = " or ".join([", ".join(numbers[:-1]), numbers[-1]]) if len(numbers) > 1 else numbers[0]
    if world > batch_size:
        raise UserError(
            f"[mesh] {world} ranks are more than the sequences of a step, train.batch_size={batch_size}: start {fit}, "
            "or begin a run with a larger batch"
        )
    if world > shards and not mesh.any_world:
        raise UserError(
            f"[mesh] {world} ranks are more than the {shards} shard{'s' * (shards > 1)} of "
            f"train.logical_shards={logical_shards} and train.batch_size={batch_size}: start {fit}, or begin a run "
            "with more shards"
        )
    if shards % world and not mesh.any_world:
        name = f"train.logical_shards={shards}"
        if shards != logical_shards:
            name = f"the {shards} shards of train.batch_size={batch_size}"
        raise UserError(
            f"[mesh] {world} ranks do not divide {name}: start {fit}, or set mesh.any_world=true (bits then depend on "
            "the world)"
        )
