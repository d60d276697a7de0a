"""The plan of a run: parameters, FLOPs, memory and time."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.paths import from_here
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.units import bytes_text, flops_text
from mudd_core.config import Config, MeshConfig
from mudd_core.data.pipelines import cache_to_build
from mudd_core.data.pipelines.cache_plan import CacheToBuild
from mudd_core.engine import memory
from mudd_core.engine.flops import matrix_weights, peak_flops
from mudd_core.engine.frozen import stored_note, trained_note
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build.disk_space import (
    most_at_once,
    refuse_full_disk,
    shortage,
)
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.mesh_search import Choice
from mudd_core.run.build.place import ALONE, Place
from mudd_core.run.build.plan_messages import message_lines
from mudd_core.run.build.plan_schedule import schedule_lines
from mudd_core.run.build.plan_time import fraction_of_peak, planned_steps, time_lines
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.build.recipe import recipe_note
from mudd_core.run.build.rows import row_shape
from mudd_core.run.build.start_tokenizer import with_source_tokenizer
from mudd_core.run.build.start_warnings import many_epochs
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.run.build.plan_mixture import PlannedMixture

# Measured bytes that the training loop adds to the program: batches, logs, buffers of a save.
LOADED_LATER = 13 * memory.MIB
# Measured resident bytes of launch.py before planning, and the part of them that its libraries use.
_RESIDENT, _LIBRARIES = 46 * memory.MIB, 20 * memory.MIB
_BLOCK_SECONDS = 0.007  # time in which planning records the graphs of a block
_NO_FIT = "DOES NOT FIT"
_KINDS = {
    "program": "program",
    "weights": "weights",
    "moments": "optimizer moments",
    "gradients": "gradients",
    "packed": "packed copies of the weights",
    "mapped": "weights of the base, mapped from its file",
    "gathered": "weights gathered for two layers",
    "exchange": "buffers of messages to other nodes",
    "arena": "activations and scratch",
    "evaluation": "activations of validation",
    "saves": "copies for an asynchronous save",
}


def program_bytes(on_a_node: int) -> int:
    """Return the bytes of a rank's program, with libraries shared on a node. Call this before any planning."""
    return _program(memory.resident_bytes(), memory.file_bytes(), on_a_node)


def usual_program_bytes(on_a_node: int) -> int:
    """Return the same for launch.py on another machine, because this process may be a notebook."""
    return _program(_RESIDENT, _LIBRARIES, on_a_node)


def _program(resident: int, libraries: int, on_a_node: int) -> int:
    return resident - libraries + libraries // on_a_node + LOADED_LATER


@dataclass(frozen=True)
class Planned:
    """The text of a plan and its values, which mc.plan documents."""

    text: str
    fits: bool
    parameters: int
    flops_per_token: float
    flops_per_step: float
    steps: int | None
    memory: Mapping[str, int]
    checkpoint_bytes: int
    seconds_per_step: float


def planned(
    config: Config,
    folder: RunFolder,
    place: Place = ALONE,
    node_memory: int = 0,
    command: Callable[[Choice], str] = lambda choice: choice.words,
    counted: float = 1.0,
) -> Planned:
    """Return the plan of a run, without writing a file. place: the ranks that will train.

    node_memory: the bytes of each machine for this run; 0: the free memory of this machine. command: returns the
    arguments that train on another mesh. counted: the fraction of targets that contribute to the loss.
    """
    from mudd_core import _core

    train = config.train
    _say_if_slow(config)
    _core.set_num_threads(train.threads)
    program = program_bytes(place.on_a_node)
    checkpoints = Checkpoints(folder)
    if not checkpoints.steps():
        config = with_source_tokenizer(config, None)[0]
    build = cache_to_build(config)
    # a trained vocabulary may be smaller than data.vocab_size
    shape = resolved_model(config, build.vocab_size or expected_vocabulary(config))
    plan = MemoryPlan.of(shape, config, place, checkpoints)
    whole = dataclasses.replace(config, mesh=MeshConfig())  # a checkpoint contains the parts of all ranks
    model, engine, report = plan_model(shape, whole, only=True, stored=plan.stored)
    own = plan.with_save_buffer(report) if place.world == 1 else plan.bytes()
    flops = engine.flops_per_token(counted)
    tokens, saved = train.batch_size * train.seq_len, plan.checkpoint_bytes(report, ALONE)
    steps = planned_steps(config, folder)
    mixture = _mixture(config, steps)
    if mixture is not None:
        steps = mixture.steps
    memory_of = {"program": program, **own}
    rate, (fraction, source) = peak_flops(train.precision), fraction_of_peak(config, folder)
    seconds = flops * tokens / (rate * fraction * place.nodes)
    memory_fits, memory_lines = _memory_lines(plan, memory_of, node_memory, command)
    disk_fits, disk_lines = _disk_lines(config, checkpoints, saved, steps, build)
    lines = [
        *_model_lines(config, model),
        f"  FLOPs         {flops_text(flops)} per token, {flops_text(flops * tokens)} per step of "
        f"{tokens:,} tokens" + ("" if steps is None else f", {flops_text(flops * tokens * steps)} in all"),
        *([] if place.world == 1 else [f"  ranks         {place.text(config)}"]),
        *memory_lines,
        *_first_start_lines(build, program),
        f"  checkpoint    {bytes_text(saved)} each, {train.keep_last or 'all'} kept",
        *disk_lines,
        *schedule_lines(config, steps),
        *time_lines(config, steps, seconds, (rate, fraction, source), place.nodes),
        *message_lines(plan),
        *_epoch_lines(config, steps, build, mixture),
        *filter(None, [_maps_line(config), recipe_note(config)]),
    ]
    return Planned(
        "\n".join(lines),
        memory_fits and disk_fits,
        model.n_parameters,
        flops,
        flops * tokens,
        steps,
        memory_of,
        saved,
        seconds,
    )


def _model_lines(config: Config, model: Model) -> list[str]:
    """Return the lines about the model and its parameters."""
    shape = model.config
    notes = filter(None, [trained_note(model.store, config.tune), stored_note(model.store)])
    return [
        f"plan of {config.name} ({shape.family}), vocabulary {shape.vocab_size:,}",
        f"  parameters    {model.n_parameters:,}, of them in matmuls {matrix_weights(shape, shape.vocab_size):,}",
        *(f"                {note}" for note in notes),
    ]


def _say_if_slow(config: Config) -> None:
    """Print a note if planning takes more than 5 s, most of it for recording the graphs of the blocks."""
    if (seconds := config.model.n_layer * _BLOCK_SECONDS) >= 5:
        words = f"planning {config.model.n_layer:,} blocks takes about {seconds:.0f} s"
        print(f"note: {words}", file=notes_stream(), flush=True)


def _first_start_lines(build: CacheToBuild, program: int) -> list[str]:
    """Return lines about the memory of the child processes that build the token cache; none if the cache exists."""
    if not build.memory:
        return []
    return [
        f"  first start   about {bytes_text(program + build.memory)} while child processes build the token cache; "
        "they end before the training"
    ]


def _disk_lines(
    config: Config, checkpoints: Checkpoints, each: int, steps: int | None, build: CacheToBuild
) -> tuple[bool, list[str]]:
    """Return False if a start would fail, and lines about the disk space for checkpoints and a new token cache."""
    if not config.train.save:
        return True, []
    cache, root = build.size, build.root
    if steps is not None:
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=steps))
    count, have = most_at_once(config), checkpoints.free_bytes()
    lines = [
        f"  disk          {bytes_text(count * each)} for up to {count} checkpoints at once; "
        f"{checkpoints.run} has {bytes_text(have)} free"
    ]
    if cache:
        lines.append(
            f"                about {bytes_text(cache)} for the token cache, to be built in {from_here(root)}"
        )
    try:
        refuse_full_disk(config, checkpoints, each)
        text = shortage(config, checkpoints, each, cache if checkpoints.shares_disk_with(root) else 0)
    except UserError as error:
        return False, lines + _indented(f"{_NO_FIT}: {error}")
    return True, lines + _indented(text)


def _mixture(config: Config, steps: int | None) -> PlannedMixture | None:
    """Return the plan of the sources of data.mix; None without a mixture. steps: the updates without their end."""
    if not config.data.mix:
        return None
    from mudd_core.run.build.plan_mixture import PlannedMixture

    return PlannedMixture(config, steps)


def _epoch_lines(
    config: Config, steps: int | None, build: CacheToBuild, mixture: PlannedMixture | None
) -> list[str]:
    """Return the lines about the sources of a mixture, and the warning of a run that reads its text many times."""
    about = "about " if build.size else ""
    if mixture is None:
        lines, found = [], many_epochs(config, steps or 0, build.tokens, about)
    else:
        lines, found = mixture.lines(), mixture.warnings()
    return lines + [line for text in found for line in _indented(f"WARNING: {text}")]


def _maps_line(config: Config) -> str:
    """Return the line about files that a start writes for data.pipeline; empty if it writes none."""
    from mudd_core.data.pipelines import plan_note

    return plan_note(config, row_shape(config))


def _memory_lines(
    plan: MemoryPlan, kinds: dict[str, int], node_memory: int, command: Callable[[Choice], str]
) -> tuple[bool, list[str]]:
    """Return True if a start has the memory, and lines: the peak of a rank, its parts, and other meshes."""
    peak, ranks, programs = sum(kinds.values()), plan.place.on_a_node, plan.place.on_a_node * kinds["program"]
    free, limit = memory.available_bytes()
    whose = "" if ranks == 1 else f" of a rank, {bytes_text(ranks * peak)} of a node of {ranks}"
    limit = (
        f"a node has {bytes_text(node_memory)} (--node-memory)"
        if node_memory
        else f"{limit} leaves {bytes_text(free)}"
    )

    def have(place: Place) -> int:
        return max(0, node_memory - place.on_a_node * kinds["program"]) if node_memory else free

    lines = [f"  memory        {bytes_text(peak)} at the peak{whose}; {limit}"]
    fits = ranks * peak - programs <= have(plan.place)
    if not fits and plan.place.world == 1:
        lines += _indented(f"{_NO_FIT}: {plan.advice(kinds, have(plan.place))}")
        if (found := plan.nearest(have)) is not None:
            lines += _mesh_that_fits(found, command, "the nearest mesh that fits is")
    lines += [
        f"    {bytes_text(kinds[kind]):>14}  {text}" for kind, text in _KINDS.items() if kinds.get(kind)
    ]
    meshes = [] if plan.place.world == 1 else _mesh_lines(plan, kinds, have, fits, command)
    return fits, lines + meshes


def _mesh_lines(
    plan: MemoryPlan,
    kinds: dict[str, int],
    have: Callable[[Place], int],
    fits: bool,
    command: Callable[[Choice], str],
) -> list[str]:
    """Return the memory of each mesh of these ranks and, if the plan does not fit, the nearest mesh that does.

    have: the bytes of a node for its ranks.
    """
    ranks, program = plan.place.on_a_node, kinds["program"]
    lines = [f"  {'meshes':<28}{'a rank':>12}{'a node':>12}"]
    for choice in plan.choices():
        node = choice.node_bytes + ranks * program
        now = " <- this plan" if choice.config.mesh == plan.config.mesh else ""
        note = now if choice.node_bytes <= have(plan.place) else f" does not fit{now}"
        lines.append(
            f"    {choice.words:<26}{bytes_text(choice.rank_bytes + program):>12}{bytes_text(node):>12}{note}"
        )
    if fits:
        return lines
    if (found := plan.nearest(have)) is None:
        return lines + _indented(
            f"{_NO_FIT} on any mesh with this train.batch_size: {plan.advice(kinds, have(plan.place))}"
        )
    return lines + _mesh_that_fits(found, command, f"{_NO_FIT}; the nearest mesh that fits is")


def _mesh_that_fits(found: Choice, command: Callable[[Choice], str], begin: str) -> list[str]:
    """Return the lines about a mesh that fits, with the command that trains on it."""
    world, nodes = found.place.world, found.place.nodes
    ranks = f"{world} rank{'s' * (world > 1)}, {nodes} node{'s' * (nodes > 1)}"
    return [f"                {begin} {found.words} on {ranks}:", f"                {command(found)}"]


def _indented(text: str) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent=" " * 16, subsequent_indent=" " * 16)
