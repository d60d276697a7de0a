"""Fields for several ranks: the mesh (docs/parallel.md), communication, and the limits of a mesh."""

from __future__ import annotations

from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config.fields import opt

SIZES = ("data", "fsdp", "zero", "expert")  # the fields that distribute work and state over ranks
LARGEST_FSDP = 64  # for the default mesh: ranks beyond this number are data parallel
WIRE_BYTES = {"fp32": 4, "bf16": 2}  # of a gradient in messages between hosts, by mesh.wire
MOST_RANKS = 1024  # logical shards of a run; each rank has at least one

# Axes that are not implemented, each with the reason.
NOT_BUILT = {
    "pipeline": "pipeline stages are not implemented yet",
    "context": "transfers of a sharded sequence take 1.6 to 29 times as long as its computation (docs/scale.md)",
    "tensor": "sharding inside layers needs 8 transfers of T x D per layer, none overlapped with compute "
    "(docs/scale.md)",
}


@dataclass(frozen=True)
class MeshConfig:
    """Distribution of a run over ranks (processes); world = data x fsdp. Only any_world and wire change results."""

    data: int = opt(
        -1,
        "number of replicas of the optimizer state; mesh.fsdp ranks together store one replica; -1 = "
        "all remaining ranks",
        "ranks",
        low=-1,
        high=MOST_RANKS,
        free=True,
    )
    fsdp: int = opt(
        -1,
        "number of ranks across which the optimizer state is sharded; -1 = world / mesh.data. If both are -1, it "
        f"is the largest divisor of the world (the number of ranks) up to {LARGEST_FSDP}",
        "ranks",
        low=-1,
        high=MOST_RANKS,
        free=True,
    )
    expert: int = opt(
        1,
        "number of neighbouring ranks across which the experts of a layer are sharded; a divisor of "
        "n_expert and of the number of ranks",
        "ranks",
        low=1,
        high=MOST_RANKS,
        free=True,
    )
    expert_room: float = opt(
        0.0,
        "capacity of a rank's receive buffer with mesh.expert, as a multiple of an even load. A step "
        "that needs more ends the run. 0 = twice an even load, or more if the machine has free memory",
        low=0.0,
        free=True,
    )
    pipeline: int = opt(1, "number of pipeline stages; not implemented yet", "ranks", low=1, free=True)
    context: int = opt(
        1,
        "number of ranks across which a sequence is sharded; not implemented yet",
        "ranks",
        low=1,
        free=True,
    )
    tensor: int = opt(
        1, "number of ranks across which a layer is sharded; not implemented", "ranks", low=1, free=True
    )
    zero: int = opt(
        1,
        "ZeRO stage: 1 = shard the optimizer state across the ranks; 3 = also shard gradients and "
        "weights, and gather the weights layer by layer. Ranks of one host always share one copy of "
        "the weights",
        "stages",
        low=1,
        high=3,
        free=True,
    )
    wire: str = opt(
        "fp32",
        "type of the gradients in messages between hosts. bf16 = half the bytes; each step rounds by another "
        "offset, so that the errors cancel. The results then depend on the number of hosts (docs/parallel.md)",
        choices=tuple(WIRE_BYTES),
        later=True,
    )
    any_world: bool = opt(
        False,
        "allow a number of ranks that does not divide train.logical_shards; the results then depend "
        "on this number",
        free=True,
    )

    @property
    def gradient_bytes(self) -> int:
        """The bytes of a gradient in messages between hosts."""
        return WIRE_BYTES[self.wire]

    def cuts_weights(self, world: int) -> bool:
        """Return True if `world` ranks gather weights from each other, and therefore run each graph together."""
        return self.zero == 3 and world > 1

    def runs_together(self, world: int) -> bool:
        """Return True if `world` ranks need each other's weights, and therefore run each graph together."""
        return self.cuts_weights(world) or (self.expert > 1 and world > 1)

    def require_readers(self, world: int) -> None:
        """Raise UserError if `world` ranks cannot load a saved model together; one rank can load any model.

        Only experts require a certain number of ranks.
        """
        if world > 1 and world % self.expert:
            raise UserError(
                f"[mesh] expert={self.expert} does not divide the {world} ranks that were started; start a multiple "
                f"of {self.expert}, or set mesh.expert=1"
            )


@dataclass(frozen=True)
class DistConfig:
    """Communication of the ranks; no field changes a result."""

    node: str = opt(
        "host",
        "host = ranks of one machine share weights and gradients in memory; rank = each rank acts as "
        "a separate host and only sends messages",
        choices=("host", "rank"),
        free=True,
    )
    isa: str = opt(
        "common",
        "with train.precision=bf16, results depend on the CPU's instructions. common = all ranks use "
        "the best instruction set that all CPUs have; same = reject ranks with different instruction "
        "sets",
        choices=("common", "same"),
        free=True,
    )
    hang_timeout: float = opt(
        0.0,
        "end the job with exit code 70 if a rank sends no heartbeat for this time; 0 = 300 s, or 20 "
        "median steps if that is longer",
        "seconds",
        low=0.0,
        free=True,
    )
    join_timeout: float = opt(
        60.0,
        "end the job with exit code 2 if a rank does not start within this time; set it on the "
        "command line, not in a file",
        "seconds",
        low=0.1,
        free=True,
    )
    compare_every: int = opt(
        500,
        "steps between comparisons of the hosts' copies of the weights; a difference ends the job "
        "with exit code 70; 0 = never",
        "steps",
        low=0,
        free=True,
    )
    debug: bool = opt(
        False, "check that all ranks communicate from the same place in the code (slow)", free=True
    )


@dataclass(frozen=True)
class Limit:
    """A rejected combination.

    mesh: the sizes; asked: the option that is rejected with them; why: the reason and the alternative.
    """

    mesh: str
    asked: str
    why: str


def _measures(mesh: str, whole: str) -> Limit:
    return Limit(
        mesh,
        "`log.weights`, `log.activations`",
        "no rank has the whole weights that log.weights and log.activations measure; "
        f"set log.weights=false log.activations=false, or use {whole}",
    )


PISSA = Limit(
    "`mesh.zero=3`",
    "`lora.init=pissa`",
    "pissa needs whole matrices, which mesh.zero=3 shards; set mesh.zero=1",
)

CUT_MEASURES = _measures("`mesh.zero=3` over several nodes", "mesh.zero=1")
EXPERT_MEASURES = _measures("`mesh.expert` above 1", "mesh.expert=1")
CUT_SLOTS = Limit(
    "`mesh.zero=3` over several nodes",
    "growing the slots of a TokenFormer",
    "slots can grow only if a host has the whole weights: start with mesh.zero=1, then continue "
    "with mesh.zero=3 from its checkpoint",
)

LIMITS = (PISSA, CUT_MEASURES, CUT_SLOTS, EXPERT_MEASURES)
