"""Writes a run's weights as a folder of an original program: settings, safetensors, tokenizer.

What was written is loaded again and must give the very logits of the run before success is reported.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.types import Array, JsonObject
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.config import Config, apply_overrides, check_config, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.families import own_family
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data.tokenize import Tokenizer
from mudd_core.data.tokenizer_files import special_ids, tokenizer_files
from mudd_core.interop.imported import imported_settings, imported_tokenizer
from mudd_core.run.store.best_step import BEST, step_asked
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import named_run, run_and_step

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

# The original programs of a family that Hugging Face does not have: of PyTorch, and of JAX.
_OF_FAMILY = {
    "mup": ("mu_transformer",),
    "muddformer": ("muddformer_torch", "muddformer_jax"),
    "tokenformer": ("tokenformer_neox", "tokenformer_jax"),
}
_OWN = "own"  # the weights by the model's own names, of any family
_PROBE = (2, 32)  # windows and positions that are compared


def main(words: Sequence[str]) -> int:
    """Run the command; 1 if the folder does not give the run's logits (it is removed then)."""
    from mudd_core.run.build.saved_model import model_of_run

    args, rest = (parser := _parser()).read(words)
    if not (args.config or args.workdir):
        parser.require("RUN")
    folder = local(args.to, "[export] --to")
    if folder.exists():
        raise UserError(f"[export] {folder} exists already; give another --to")
    if args.workdir:
        args.workdir, step = run_and_step(args.workdir)
        args.step = step if args.step is None else args.step
    options = {f"--{name}": getattr(args, name) for name in ("config", "workdir") if getattr(args, name)}
    changes = [word for word in rest if argument(word).name.startswith("model.")]
    config, run = named_run(options, [word for word in rest if word not in changes])
    config = apply_overrides(config, split_words(changes, config))
    check_config(config)
    systems = (args.system,) if args.system else systems_of(config)
    own = systems == (_OWN,)
    step = step_asked(args.step, run, "[export] --step")
    model, _ = model_of_run(config, run, step, precision=config.train.precision if own else "fp32")
    tokenizer = _tokenizer(args.tokenizer, config, run, model.config.vocab_size)
    if own:
        model.save(folder, tokenizer)
        print(f"{len(model.parameters)} tensors in {folder}, by the names of the model; mc.load opens it")
        return 0
    system, settings, weights = first_exported(systems, model)
    if system == "hf":
        settings, files = _of_hugging_face(settings, model, tokenizer, run, kept=args.tokenizer is None)
    else:
        files = {} if tokenizer is None else tokenizer_files(tokenizer, model.config.max_seq_len)
    write_folder(folder, settings, weights, shard_bytes=args.shard_mb << 20, files=files)
    difference, largest = compare(system, folder, model)
    if difference != 0.0:
        shutil.rmtree(folder)
        print(
            f"error: [export] logits of {folder} differ by {difference:.3e}; it was removed", file=sys.stderr
        )
        return 1
    program = "" if args.system or system == "hf" else f" for {system}"
    print(
        f"{len(weights)} tensors in {folder}{program}; loaded again, its logits are the run's"
        f"{' with ' + shlex.join(changes) if changes else ''} (largest {largest:.4g})"
    )
    return 0


def systems_of(config: Config) -> tuple[str, ...]:
    """The programs that the model of a run comes from, the likeliest first; hf for the models that it has."""
    if own_family(config.model):
        return (_OWN,)
    known = _OF_FAMILY.get(config.model.family, ("hf",))
    return known[::-1] if config.log.style == "maxtext" else known


def first_exported(systems: Sequence[str], model: Model) -> tuple[str, JsonObject, dict[str, Array]]:
    """The first of the programs that has all fields of the model, with its settings and weights."""
    refusals = list[UserError]()
    for system in systems:
        try:
            return system, *_exported(system, model)
        except UserError as error:
            refusals.append(error)
    if len(systems) == 1:
        raise refusals[0]
    raise UserError(f"{refusals[0]}; --system={_OWN} writes any model by its own names") from refusals[0]


def _exported(system: str, model: Model) -> tuple[JsonObject, dict[str, Array]]:
    """Settings and weights as the other program has them, with a line for each field of training that it lacks."""
    from mudd_core import interop

    try:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            settings, weights = interop.export_original(system, model)
    except ValueError as error:  # a family or a field that the other program does not have
        way_out = f"; --system={_OWN} writes any model by its own names" if own_family(model.config) else ""
        raise UserError(f"[export] {error}{way_out}") from error
    for note in notes:
        print(f"note: {note.message}", file=sys.stderr)
    return settings, weights


def _of_hugging_face(
    settings: JsonObject, model: Model, tokenizer: Tokenizer | None, run: RunFolder, *, kept: bool
) -> tuple[JsonObject, dict[str, bytes]]:
    """config.json and the tokenizer's files: those that an imported run came with where they still fit, else made.

    kept: the run's own tokenizer is exported.
    """
    theirs, files = imported_settings(run, model.config), imported_tokenizer(run) if kept else {}
    settings = settings if theirs is None else theirs
    if tokenizer is None or (files and theirs is not None and "generation_config.json" in files):
        return settings, files
    ids = {} if files and theirs is not None else special_ids(tokenizer)
    made = {} if files else tokenizer_files(tokenizer, model.config.max_seq_len)
    return {**settings, **ids}, {"generation_config.json": _generation(tokenizer), **made, **files}


def _generation(tokenizer: Tokenizer) -> bytes:
    """generation_config.json: generate() stops at the end of a document, and pads with it where nothing else does."""
    ids = special_ids(tokenizer)
    padding = ids["eos_token_id"] if ids["pad_token_id"] is None else ids["pad_token_id"]
    return (json.dumps({**ids, "pad_token_id": padding}, indent=2) + "\n").encode()


def _parser() -> ToolArguments:
    from mudd_core.interop import SYSTEMS

    p = ToolArguments("export", __doc__ or "", fields="data.cache_dir=DIR", run="--workdir")
    p.add_argument("--workdir", metavar="DIR", help="the run: its newest checkpoint is exported")
    p.add_argument("--config", metavar="FILE", help="instead: config of a run in its default folder")
    p.add_argument("--to", required=True, metavar="FOLDER", help="the new folder")
    whom = f"for whom: {', '.join(SYSTEMS)}; {_OWN}: by our names, for mc.load; default hf, or the family's program"
    p.add_argument("--system", choices=(*SYSTEMS, _OWN), metavar="NAME", help=whom)
    p.add_argument(
        "--step",
        type=_step,
        metavar="N",
        help="this checkpoint instead of the newest; best: of the lowest validation loss",
    )
    p.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer to write with the weights; default the run's own"
    )
    p.add_argument(
        "--shard-mb",
        type=whole_number(0, 2**40),
        default=4096,
        metavar="N",
        help="largest file, MiB; 0: a file for each tensor; default 4096",
    )
    return p


def _step(text: str) -> int | str:
    """The value of --step: a number, or best."""
    return text if text == BEST else whole_number(0)(text)


def _tokenizer(asked: str | None, config: Config, run: RunFolder, vocab_size: int) -> Tokenizer | None:
    """The tokenizer to export; a note where there is none."""
    from mudd_core.run.build.run_tokenizer import asked_tokenizer, own_tokenizer

    if asked is not None:
        return asked_tokenizer(asked, config, vocab_size)
    found = own_tokenizer(config, run)
    if found is None:
        print(
            f"note: no tokenizer is exported: {run} has none (its data are ids, or its token cache is gone); "
            "--tokenizer=PATH adds one",
            file=sys.stderr,
        )
    return found


def compare(system: str, folder: Path, model: Model) -> tuple[float, float]:
    """(largest difference of a logit between a folder and the model, largest logit) on made-up ids."""
    from mudd_core import interop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = interop.load_original(system, folder, folder)
    shape = (_PROBE[0], min(_PROBE[1], model.config.max_seq_len))
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, shape)
    want = model.logits(ids)
    return float(np.abs(again.logits(ids) - want).max()), float(np.abs(want).max())
