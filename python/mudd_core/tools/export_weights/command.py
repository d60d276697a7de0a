"""The command `export`: a run's weights as a folder of an original program, or with mudd_core's names."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mudd_core.base.errors import FormatError
from mudd_core.base.show.waiting import waiting
from mudd_core.checkpoint import final_hash
from mudd_core.checkpoint.manifest import Manifest
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.stored import StoredTensor, stored_tensors
from mudd_core.checkpoint.weights_folder import Later
from mudd_core.engine.frozen import weight_view
from mudd_core.engine.model import Model
from mudd_core.engine.model_folder import read_model, write_weights
from mudd_core.engine.state import average_name, weight_parts
from mudd_core.run.build.base import tensors_with_base
from mudd_core.run.ranks.hang_watch import reader_watch
from mudd_core.run.ranks.rank_checks import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.best_step import require_readers, step_asked
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.adapter import base_name
from mudd_core.tools.export_weights.asked import Asked
from mudd_core.tools.export_weights.folder import OWN, carried_files, refuse_table, systems_of
from mudd_core.tools.export_weights.forms import Export, Outcome
from mudd_core.tools.export_weights.gguf import GgufPlan, export_gguf
from mudd_core.tools.export_weights.held_model import Held
from mudd_core.tools.export_weights.probe import difference, probe_logits
from mudd_core.tools.export_weights.record import Record


def main(words: Sequence[str]) -> int:
    """Run the command. If the exported logits differ from the run's, remove the folder and return 1."""
    return by_ranks(words, Ranks())


def require_ranks(words: Sequence[str], job: Sequence[str]) -> Callable[[int], None]:
    """Raise UserError for wrong arguments. Return a check that raises UserError if N ranks cannot read the run.

    job: as in ToolArguments.read.
    """
    asked = Asked.of(words, job)
    return require_readers(asked.args.workdir, asked.run, asked.args.step, "[export] --step")


def by_ranks(words: Sequence[str], ranks: Ranks) -> int:
    """Run the command on each rank of a job; return the exit code."""
    outcome = export_run(words, ranks)
    if ranks.first and outcome.differs:
        print(f"error: {outcome.text}", file=sys.stderr)
    elif ranks.first:
        print(f"{outcome.text}\nto load it in Python:\n  {outcome.loading}")
    return int(outcome.differs)


def export_run(words: Sequence[str], ranks: Ranks) -> Outcome:
    """Export a run on each rank of a job. The model is sharded, and rank 0 writes one tensor at a time."""
    from mudd_core.run.build.saved_model import model_of_run

    asked = ranks.together(lambda: Asked.of(words))
    config, run = ranks.in_turn(asked.run)
    ranks.together(lambda: config.mesh.require_readers(ranks.world))
    hold_machine(ranks, config)
    systems = (asked.args.system,) if asked.args.system else systems_of(config)
    own = systems == (OWN,)
    ranks.together(lambda: refuse_table(config.model, systems, asked.args.gguf))
    plan = ranks.together(lambda: GgufPlan.of(asked, config, run)) if asked.args.gguf else None
    base = ranks.together(lambda: base_name(asked.args.base, run, config) if asked.args.adapter else "")
    step = ranks.together(lambda: step_asked(asked.args.step, run, "[export] --step"))
    precision = config.train.precision if own else "fp32"
    model, found = model_of_run(
        config, run, step, precision=precision, ranks=ranks, average=asked.args.average
    )
    weights = stored_tensors(*_step_of(run, found))
    if asked.args.average:
        weights = {name: weights.get(average_name(name), tensor) for name, tensor in weights.items()}
    if is_adapted := model.lora is not None:  # the checkpoint has only adapters
        weights = tensors_with_base(config, model, run, weights)
    is_cut, held = not model.store.holds_all, Held(model)
    size = 4 * model.n_parameters  # bytes of the folder; ranks of other nodes wait until it is written
    watch = reader_watch(ranks, config, model.n_parameters)
    del model
    line = waiting(f"exporting the weights of {run}", shown=ranks.first)
    with line, watch.over(), watch.saving(found, size):
        out = Export(asked, config, run, found, ranks, weights, is_cut, lambda: watch.phase("save", found))
        if plan is not None:
            return export_gguf(out, held, plan, base)
        if asked.args.adapter:
            return out.adapter(held, base)
        if own:
            return _own(out, held)
        return out.merged(held, systems) if is_adapted else out.whole(held, systems, weights, {})


def _own(out: Export, held: Held) -> Outcome:
    """Write the weights with mudd_core's names and read them again."""
    weights, ranks = out.weights, out.ranks
    if out.asked.args.merged:
        held, weights = out.plain(held)
    model, cut = held.model, weights if out.is_cut else None
    digest, folder = final_hash(weight_parts(model.store, model.store.names()), model.comm), out.asked.folder
    beside = out.beside(model.config, {}, f"a model of the family {model.config.family}", "", "mudd_core")
    files = {} if beside.tokenizer is None else carried_files(beside, model.config)

    def write() -> tuple[str, float]:
        line = _write_own(out, model, cut, digest, files, beside.record)
        text = f"{line}; verified: these weights equal the run's weights"
        try:
            if ranks.world > 1:
                read_model(folder)  # read_model compares the hash
                return text, 0.0
            return text, difference(probe_logits(Model.load(folder)), probe_logits(model))[0]
        except FormatError:
            return text, math.inf

    text, far = ranks.from_first(write)
    return out.compared(text, far, OWN, "mudd_core", "load({folder}).model")


def _step_of(run: RunFolder, step: int) -> tuple[Path, Manifest]:
    folder = run.step_folder(step)
    return folder, read_manifest(folder)


def _write_own(
    out: Export,
    model: Model,
    cut: Mapping[str, StoredTensor] | None,
    digest: str,
    files: Mapping[str, bytes],
    record: Record,
) -> str:
    """Write the folder; return a line for the user. cut: as in write_theirs. files: of the tokenizer.

    record: writes the statement about the weights.
    """
    asked, names = out.asked, model.store.names()
    weights = {
        name: Later.of(weight_view(model.store, name)) if cut is None else Later.stored(cut[name])
        for name in names
    }
    living = {name: tensor.after(out.alive) for name, tensor in weights.items()}
    write_weights(model, asked.folder.absolute(), files, living, digest, record.last(OWN))
    return f"{len(names)} tensors in {asked.folder}, by the names of the model, for mc.load"
