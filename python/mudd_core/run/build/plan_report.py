"""The plan of a run: parameters, FLOPs, memory and time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.paths import from_here
from mudd_core.base.surroundings import notes_stream
from mudd_core.base.units import bytes_text, flops_text
from mudd_core.config import Config, MeshConfig, ModelConfig
from mudd_core.data.pipelines import cache_to_build
from mudd_core.data.pipelines.cache_plan import CacheToBuild
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
from mudd_core.run.build.plan_memory import NO_FIT, indented, memory_lines, program_bytes
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

_BLOCK_SECONDS = 0.007  # time in which planning records the graphs of a block


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
    config, build, shape = _as_started(config, checkpoints)
    plan = MemoryPlan.of(shape, config, place, checkpoints)
    whole = dataclasses.replace(config, mesh=MeshConfig())  # a checkpoint contains the parts of all ranks
    model, engine, report = plan_model(shape, whole, only=True, stored=plan.stored)
    own = plan.with_save_buffer(report) if place.world == 1 else plan.bytes()
    flops = engine.flops_per_token(counted)
    tokens, saved = train.batch_size * train.seq_len, plan.checkpoint_bytes(report, ALONE)
    steps, mixture = _length(config, folder)
    memory_of = {"program": program, **own}
    rate, (fraction, source) = peak_flops(train.precision), fraction_of_peak(config, folder)
    seconds = flops * tokens / (rate * fraction * place.nodes)
    memory_fits, of_memory = memory_lines(plan, memory_of, node_memory, command)
    disk_fits, disk_lines = _disk_lines(config, checkpoints, saved, steps, build)
    lines = [
        *_model_lines(config, model),
        _flops_line(flops, tokens, steps),
        *([] if place.world == 1 else [f"  ranks         {place.text(config)}"]),
        *of_memory,
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


def _as_started(config: Config, checkpoints: Checkpoints) -> tuple[Config, CacheToBuild, ModelConfig]:
    """Return the config with the tokenizer of the weights, the token cache to build, and the model's shape."""
    if not checkpoints.steps():
        config = with_source_tokenizer(config, None)[0]
    build = cache_to_build(config)
    # a trained vocabulary may be smaller than data.vocab_size
    return config, build, resolved_model(config, build.vocab_size or expected_vocabulary(config))


def _length(config: Config, folder: RunFolder) -> tuple[int | None, PlannedMixture | None]:
    """Return the updates of the run, None if only its start knows them, and the plan of data.mix if it is set."""
    steps = planned_steps(config, folder)
    if not config.data.mix:
        return steps, None
    from mudd_core.run.build.plan_mixture import PlannedMixture

    mixture = PlannedMixture(config, steps)
    return mixture.steps, mixture


def _flops_line(flops: float, tokens: int, steps: int | None) -> str:
    """Return the line about FLOPs. flops: per token. tokens: per step."""
    whole = "" if steps is None else f", {flops_text(flops * tokens * steps)} in all"
    step = f"{flops_text(flops * tokens)} per step of {tokens:,} tokens"
    return f"  FLOPs         {flops_text(flops)} per token, {step}{whole}"


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
        return False, lines + indented(f"{NO_FIT}: {error}")
    return True, lines + indented(text)


def _epoch_lines(
    config: Config, steps: int | None, build: CacheToBuild, mixture: PlannedMixture | None
) -> list[str]:
    """Return the lines about the sources of a mixture, and the warning of a run that reads its text many times."""
    about = "about " if build.size else ""
    if mixture is None:
        lines, found = [], many_epochs(config, steps or 0, build.tokens, about)
    else:
        lines, found = mixture.lines(), mixture.warnings()
    return lines + [line for text in found for line in indented(f"WARNING: {text}")]


def _maps_line(config: Config) -> str:
    """Return the line about files that a start writes for data.pipeline; empty if it writes none."""
    from mudd_core.data.pipelines import plan_note

    return plan_note(config, row_shape(config))
