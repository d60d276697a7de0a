"""Writes a run's weights as a folder of an original program, or by our own names (launch.py export)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.checkpoint.manifest import Manifest
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.stored import stored_tensors
from mudd_core.interop.export_adapter import base_name
from mudd_core.interop.export_asked import Asked
from mudd_core.interop.export_folder import OWN, systems_of
from mudd_core.interop.export_forms import Export
from mudd_core.interop.merged import merged_model
from mudd_core.run.ranks.rank_levels import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.best_step import step_asked
from mudd_core.run.store.run_folder import RunFolder


def main(words: Sequence[str]) -> int:
    """Run the command; 1 if the folder does not give the run's logits (it is removed then)."""
    return by_ranks(words, Ranks())


def by_ranks(words: Sequence[str], ranks: Ranks) -> int:
    """As main, on each rank of a job: they hold the model between them, and rank 0 writes a tensor at a time."""
    from mudd_core.run.build.saved_model import model_of_run

    asked = ranks.together(lambda: Asked.of(words))
    config, run = ranks.in_turn(asked.run)
    ranks.together(lambda: config.mesh.require_readers(ranks.world))
    hold_machine(ranks, config)
    systems = (asked.args.system,) if asked.args.system else systems_of(config)
    own = systems == (OWN,)
    base = ranks.together(lambda: base_name(asked.args.base, run, config) if asked.args.adapter else "")
    step = ranks.together(lambda: step_asked(asked.args.step, run, "[export] --step"))
    precision = config.train.precision if own else "fp32"
    model, found = model_of_run(config, run, step, precision=precision, ranks=ranks)
    cut = None if model.store.holds_all else stored_tensors(*_step_of(run, found))
    if cut is not None and model.lora is not None:  # its checkpoint has adapters alone
        ranks.together(_refuse_adapters)
    out = Export(asked, config, run, found, ranks)
    if asked.args.adapter:
        return out.adapter(model, base)
    if own:
        return out.own(merged_model(model) if asked.args.merged else model, cut)
    return out.merged(model, systems) if model.lora is not None else out.whole(model, systems, cut, {})


def _refuse_adapters() -> None:
    raise UserError("[export] adapters are exported by one process, which has their base: leave out --ranks")


def _step_of(run: RunFolder, step: int) -> tuple[Path, Manifest]:
    folder = run.step_folder(step)
    return folder, read_manifest(folder)
