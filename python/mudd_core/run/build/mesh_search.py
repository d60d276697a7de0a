"""The possible meshes of a run, starting with the ones that are nearest to its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mudd_core.base.errors import UserError
from mudd_core.config import Config, MeshConfig, check_config, mesh_of, mixture_of
from mudd_core.config.arguments import without
from mudd_core.config.mesh import SIZES
from mudd_core.config.overrides import field_path
from mudd_core.config.schema import fields_of_all
from mudd_core.run.build.place import Place

_NAMES = tuple(f"mesh.{name}" for name in SIZES)


def _short_names() -> list[str]:
    """Return the mesh fields as users type them without their section: --zero=3."""
    infos = fields_of_all()
    return [name for name in SIZES if field_path(name, infos) in _NAMES]


@dataclass(frozen=True)
class Choice:
    """A possible mesh of a run. rank_bytes: bytes per rank, without the program."""

    config: Config
    place: Place
    rank_bytes: int

    @property
    def node_bytes(self) -> int:
        """The bytes of a node, without its programs."""
        return self.place.on_a_node * self.rank_bytes

    @property
    def words(self) -> str:
        """The mesh as arguments."""
        mesh = self.config.mesh
        return f"mesh.zero={mesh.zero}" + (f" mesh.expert={mesh.expert}" if mesh.expert > 1 else "")

    def arguments(self, words: Sequence[str], mesh: MeshConfig) -> list[str]:
        """Return the arguments of a run with `mesh` replaced by this mesh."""
        own = self.config.mesh
        found = [*without(words, [*_NAMES, *_short_names()]), *self.words.split()]
        if own.expert == 1 < mesh.expert:
            found.append("mesh.expert=1")  # needed because a config file may set it
        if own != replace(mesh, zero=own.zero, expert=own.expert):
            found += ["mesh.data=-1", "mesh.fsdp=-1"]
        return found


def meshes(config: Config, world: int) -> list[Config]:
    """Return the config with each supported mesh of `world` ranks, nearest to its own first.

    Only mesh.zero and mesh.expert affect storage: every data x fsdp stores and sends the same bytes.
    """
    now, mixture = config.mesh, mixture_of(config.model)
    experts = (
        [size for size in range(1, mixture.n_expert + 1) if mixture.n_expert % size == 0] if mixture else [1]
    )
    asked = [
        (zero, expert) for zero in ((1, 3) if world > 1 else (1,)) for expert in experts if expert <= world
    ]
    asked.sort(key=lambda mesh: ((mesh[0] != now.zero) + (mesh[1] != now.expert), mesh))
    found = (replace(config, mesh=_of_size(now, zero, expert, world)) for zero, expert in asked)
    return [changed for changed in found if _is_built(changed, world)]


def _of_size(mesh: MeshConfig, zero: int, expert: int, world: int) -> MeshConfig:
    """Return the mesh with other settings. data and fsdp stay if their sizes fit the world size."""
    stays = world % max(1, mesh.data) == 0 == world % max(1, mesh.fsdp) and (
        -1 in (mesh.data, mesh.fsdp) or mesh.data * mesh.fsdp == world
    )
    sizes = (mesh.data, mesh.fsdp) if stays else (-1, -1)
    return replace(mesh, zero=zero, expert=expert, data=sizes[0], fsdp=sizes[1])


def _is_built(config: Config, world: int) -> bool:
    try:
        check_config(config)
        mesh_of(config, world)
    except UserError:
        return False
    return True
