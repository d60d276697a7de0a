"""Export a model as a folder of an original program. The folder is loaded again to compare the logits."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array, Float32, JsonObject
from mudd_core.checkpoint import dtypes
from mudd_core.checkpoint.stored import AnyTensor, StoredTensor
from mudd_core.checkpoint.weights_folder import Later, write_folder
from mudd_core.config import Config, ModelConfig
from mudd_core.config.families import own_family
from mudd_core.data.tokenizers.files import special_ids, tokenizer_files
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.engine.cut import Spread
from mudd_core.interop.imported import imported_settings, imported_tokenizer, of_type
from mudd_core.interop.layout import TheirTensors
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.export_weights.held_model import Alive, nothing
from mudd_core.tools.export_weights.model_card import NAME as CARD
from mudd_core.tools.export_weights.probe import probe_logits
from mudd_core.tools.export_weights.record import Record
from mudd_core.tools.export_weights.template import Trained, with_trained

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

OWN = "own"  # the weights under the model's own names, for any family


def systems_of(config: Config) -> tuple[str, ...]:
    """Return the programs that support the run's model, the most likely first. hf is transformers."""
    if own_family(config.model):
        return (OWN,)
    from mudd_core.interop import programs_with_weights

    for name, program in programs_with_weights().items():
        if known := program.exports.get(config.model.family):
            # A run with the program's log style was started in its grammar, so its format is the most likely one.
            return known[::-1] if config.log.style == name else known
    return ("hf",)


def refuse_table(model: ModelConfig, systems: Sequence[str], gguf: bool) -> None:
    """Raise UserError for a model with a table of n-grams, unless its own names are exported. It reads no weights."""
    if model.ngram_rows and (gguf or OWN not in systems):
        raise UserError(
            f"[export] model.ngram_rows={model.ngram_rows}: no other program has a table of n-grams; --system={OWN} "
            f"{'instead of --gguf ' if gguf else ''}writes any model by its own names, for mc.load"
        )


def first_exported(
    systems: Sequence[str], model: Model, cut: Mapping[str, AnyTensor] | None = None
) -> tuple[str, JsonObject, TheirTensors]:
    """Return the first program that supports all fields of the model, with its settings and weights.

    cut: the weights of a sharded model.
    """
    refusals = list[UserError]()
    for system in systems:
        try:
            return system, *_exported(system, model, cut)
        except UserError as error:
            refusals.append(error)
    if len(systems) == 1:
        raise refusals[0]
    raise UserError(f"{refusals[0]}; --system={OWN} writes any model by its own names") from refusals[0]


def _exported(
    system: str, model: Model, cut: Mapping[str, AnyTensor] | None
) -> tuple[JsonObject, TheirTensors]:
    """Return the other program's settings and weights, with a line for each training field that it lacks."""
    from mudd_core import interop

    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            settings, weights = interop.export_tensors(system, model, cut)
    except ValueError as error:  # the other program lacks a family or a field
        way_out = f"; --system={OWN} writes any model by its own names" if own_family(model.config) else ""
        raise UserError(f"[export] {error}{way_out}") from error
    for note in notes:
        print(f"note: {note.message}", file=sys.stderr)
    return settings, weights


def _of_hugging_face(
    settings: JsonObject, model: ModelConfig, beside: Beside
) -> tuple[JsonObject, dict[str, bytes]]:
    """Return config.json and the tokenizer's files: the imported files if they still fit, else new ones."""
    theirs, files = (
        imported_settings(beside.came, model),
        imported_tokenizer(beside.came) if beside.kept else {},
    )
    tokenizer = beside.tokenizer
    if theirs is not None:
        settings = theirs if beside.kinds else of_type(theirs, "float32")
    if tokenizer is None or (files and theirs is not None and "generation_config.json" in files):
        return settings, files
    ids = {} if files and theirs is not None else special_ids(tokenizer)
    made = {} if files else tokenizer_files(tokenizer, model.max_seq_len)
    return {**settings, **ids}, {"generation_config.json": _generation(tokenizer), **made, **files}


def _generation(tokenizer: Tokenizer) -> bytes:
    """Return generation_config.json. generate() then stops at EOS, and pads with EOS if there is no padding token."""
    ids = special_ids(tokenizer)
    padding = ids["eos_token_id"] if ids["pad_token_id"] is None else ids["pad_token_id"]
    return (json.dumps({**ids, "pad_token_id": padding}, indent=2) + "\n").encode()


@dataclass(frozen=True)
class Beside:
    """The files that are written with the weights.

    came: the run whose imported files are exported. tokenizer: saved as files if the imported ones do not fit. kept:
    the tokenizer is the run's own. kinds: the safetensors types by tensor name; empty: all float32. card: the model
    card.
    record: writes the statement about the weights. trained: the chat template of the run.
    """

    came: RunFolder
    tokenizer: Tokenizer | None
    kept: bool
    kinds: Mapping[str, str]
    card: bytes
    record: Record
    trained: Trained | None = None


def carried_files(beside: Beside, model: ModelConfig) -> dict[str, bytes]:
    """Return the imported files of the tokenizer, or else new files from the run's tokenizer."""
    files = imported_tokenizer(beside.came) if beside.kept else {}
    if not files and beside.tokenizer is not None:
        files = tokenizer_files(beside.tokenizer, model.max_seq_len)
    return _as_trained(files, beside)


def hugging_face_files(
    settings: JsonObject, model: ModelConfig, beside: Beside
) -> tuple[JsonObject, dict[str, bytes]]:
    """Return config.json and the other files of a folder for transformers, with the trained chat template."""
    settings, files = _of_hugging_face(settings, model, beside)
    return settings, _as_trained(files, beside)


def _as_trained(files: dict[str, bytes], beside: Beside) -> dict[str, bytes]:
    """Return the tokenizer's files with the template that the run was trained with."""
    return files if beside.tokenizer is None else with_trained(files, beside.trained, beside.tokenizer.eos_id)


def write_theirs(
    folder: Path,
    model: Model,
    systems: Sequence[str],
    cut: Mapping[str, StoredTensor] | None,
    beside: Beside,
    *,
    shard_bytes: int,
    alive: Alive = nothing,
) -> tuple[str, int]:
    """Write the folder of another program; return the program's name and the number of tensors.

    cut: the weights of a sharded model, on disk. alive: called for each tensor.
    """
    system, settings, weights = first_exported(systems, model, cut)
    tokenizer, kinds = beside.tokenizer, beside.kinds
    if system == "hf":
        settings, files = hugging_face_files(settings, model.config, beside)
    else:
        files = {} if tokenizer is None else tokenizer_files(tokenizer, model.config.max_seq_len)
    later = {
        name: Later(kind := kinds.get(name, "F32"), shape, partial(_as_stored, weights, name, kind)).after(
            alive
        )
        for name, shape in weights.shapes.items()
    }
    files = {**files, CARD: beside.card}
    write_folder(
        folder, settings, later, shard_bytes=shard_bytes, files=files, last=beside.record.last(system)
    )
    return system, len(weights)


def _as_stored(weights: TheirTensors, name: str, kind: str) -> Array:
    return dtypes.rounded(dtypes.as_float32(weights[name]), kind)


def loaded_logits(
    system: str, folder: Path, config: Config, ranks: Ranks | None = None, alive: Alive = nothing
) -> Float32:
    """Return the logits of the probe ids by the model in a folder.

    ranks: the config's mesh shards the model across them; all make this call. alive: called for each tensor.
    """
    from mudd_core import interop
    from mudd_core.run.build.planned_model import spread_of

    ranks = ranks or Ranks()

    def spread(shape: ModelConfig) -> Spread:
        return spread_of(shape, config, ranks)

    again = interop.load_original(system, folder, folder, spread=spread, alive=alive)
    ranks.barrier()  # wait, because ranks of a node may share the weights
    return probe_logits(again)
