"""Import weights of Hugging Face or of an original program as the first checkpoint of a run. No pickle is opened."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.show.waiting import waiting
from mudd_core.base.surroundings import typed_program
from mudd_core.base.types import JsonObject
from mudd_core.checkpoint import StatePart
from mudd_core.config import (
    Config,
    DataConfig,
    LossConfig,
    TrainConfig,
    apply_overrides,
    check_config,
    split_words,
)
from mudd_core.config.fields import replace_path
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.interop.imported import imported_files, keep_imported
from mudd_core.interop.settings import Settings
from mudd_core.run.build.recipe import printable
from mudd_core.run.records.events import EventName
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.fetch import staged
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.identity import TRAINED_ON, is_unfinished_import
from mudd_core.run.store.run_folder import UNFINISHED, RunFolder
from mudd_core.run.store.saved_run import fetch_run
from mudd_core.run.store.step_saves import Outcome
from mudd_core.tools.import_weights.source import require_source
from mudd_core.tools.import_weights.start import with_tokenizer

if TYPE_CHECKING:
    from mudd_core.engine.model import Model
    from mudd_core.interop import Theirs


def main(words: Sequence[str], *, is_base: bool = False) -> int:
    """Run the command.

    is_base: the run is the base of others: matrices stay frozen, in the type of the files, and have no moments.
    """
    args, rest = _parser().read(words)
    source = local(args.source, "[import] PATH")
    workdir = local(args.workdir, "[import] --workdir")
    settings = local(args.settings, "[import] --settings") if args.settings else source
    require_source(args.source, source, has_settings=bool(args.settings))
    run = RunFolder(workdir)
    fetch_run(run)
    _require_free(run)
    from mudd_core import interop
    from mudd_core.engine.model import Model
    from mudd_core.tools.import_weights.start import first_parts, fits, narrow_kind

    with waiting(f"reading {source}"), warnings.catch_warnings(), interop.what_fits():
        warnings.simplefilter("ignore")  # the warning about other tools' files does not apply to an import
        theirs = interop.read_original(args.system, settings, source)
        config = _config(args.system, theirs, workdir, rest)
        model = Model(theirs.config, booked_only=True)
        if is_base:
            config = replace_path(config, "train.trainable", ",".join(_vectors(model)))
        weights = theirs.ours(model.store)
        kind = narrow_kind(source) if config.train.trainable else ""
        found = {name: kind for name, tensor in weights.items() if fits(tensor, kind)}
    own = args.system == "hf" and not args.tokenizer and (source / "tokenizer.json").is_file()
    config, tokenizer = with_tokenizer(
        config, args.tokenizer, source, workdir, is_base=is_base, keeps_folder=own
    )
    check_config(config)
    kept = {}
    if args.system == "hf":
        kept = imported_files(source, settings, tokenizer=own)
    with waiting(f"writing the weights to {run}"):
        _save(config, first_parts(config, weights, found), run, tokenizer, kept)
    _say_imported(config, theirs, run, model.n_parameters)
    return 0


def _parser() -> ToolArguments:
    from mudd_core.interop import systems

    p = ToolArguments("import", __doc__ or "", fields="train.steps=100")
    p.add_argument(
        "source", metavar="PATH", help="folder with config.json and safetensors, or a safetensors file"
    )
    p.add_argument("--workdir", required=True, metavar="DIR", help="work directory of the new run")
    whose = f"format of the weights: {', '.join(systems())}; default hf, Hugging Face"
    p.add_argument("--system", choices=tuple(systems()), default="hf", metavar="NAME", help=whose)
    p.add_argument(
        "--settings",
        metavar="FILE",
        help="JSON file with the model's settings; default PATH/config.json",
    )
    p.add_argument(
        "--tokenizer",
        metavar="FILE",
        help="tokenizer.json of the model, or bytes for one token per byte; default PATH/tokenizer.json",
    )
    return p


def _config(system: str, theirs: Theirs, workdir: Path, words: list[str]) -> Config:
    """Return the config of a run from these weights; data.tokenizer is empty unless the arguments set it."""
    config = Config(
        name=workdir.name or "imported",
        model=theirs.config,
        data=DataConfig(
            tokenizer="",
            recipe_text=_named(theirs.settings, _TEXTS, TRAINED_ON),
            recipe_tokenizer=_named(theirs.settings, _TOKENIZERS, "of the model"),
        ),
        train=TrainConfig(seq_len=min(256, theirs.config.max_seq_len), logical_shards=1),
        optim=theirs.system.optimizer(theirs.settings),
        loss=LossConfig(normalize=theirs.system.normalize),
    )
    config = apply_overrides(config, split_words(words, config))
    if config.model != theirs.config:
        raise UserError("[import] model: the weights decide the model; change it after the import")
    return config


# Dropouts of transformers that only the family gpt2 has.
_DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop")
# Settings of the original programs that name a dataset or a tokenizer.
_TEXTS = ("hfds_identifier", "dataset_name", "dataset_type", "data_path")
_TOKENIZERS = ("hftr_tokenizer_instance", "tokenizer_path", "tokenizer_type")


def _named(settings: Settings, names: Sequence[str], otherwise: str) -> str:
    found = (settings.get(name) for name in names)
    return next((printable(name) for name in found if isinstance(name, str) and name), otherwise)


def _vectors(model: Model) -> list[str]:
    """Return the parameters that are never stored in 16 bits."""
    return [name for name in model.store.names() if not model.store.describe(name)["may_be_narrow"]]


def _require_free(run: RunFolder) -> None:
    """Raise UserError if the folder has a run. An interrupted import may be repeated in its folder."""
    if Checkpoints(run).steps():
        raise UserError(f"[import] {run} already contains checkpoints; type another --workdir")
    if run.holds_run and not is_unfinished_import(run):
        raise UserError(f"[import] {run} already contains a run; type another --workdir")


def _save(
    config: Config,
    parts: Sequence[StatePart],
    run: RunFolder,
    tokenizer: Path | None,
    kept: Mapping[str, bytes],
) -> None:
    """Write the folder of the run, which appears complete or not at all."""
    with FolderLock(run) as lock:
        _require_free(lock.folder)
        try:
            with staged(lock.folder) as stage:
                _write(config, parts, stage, tokenizer, kept)
        except SaveError as error:
            # The staging folder is gone, so the message names the folder that the user wrote.
            reason = str(error).replace(str(lock.folder.path / UNFINISHED), str(run))
            raise SaveError(
                f"{reason}; nothing was imported; type the same command to start again"
            ) from error


def _write(
    config: Config,
    parts: Sequence[StatePart],
    folder: RunFolder,
    tokenizer: Path | None,
    kept: Mapping[str, bytes],
) -> None:
    from mudd_core.run.store.run_store import RunStore

    store = RunStore(folder)
    try:
        store.adopt(config)
        store.begin({}, ())
        if tokenizer is not None:
            _copy(tokenizer, folder.path / "tokenizer.json")
        keep_imported(kept, folder)
        state: JsonObject = {
            "step": 0,
            "skipped_steps": [],
            "skips_in_row": 0,
            "last_loss": None,
            "seconds": 0.0,
        }
        if store.save(0, parts, state) is Outcome.FAILED:
            assert store.save_error is not None
            raise store.save_error
        store.logs.files.event(EventName.IMPORTED)
    finally:
        store.close()


def _copy(file: Path, to: Path) -> None:
    from mudd_core import _core

    try:
        _core.replace_file(str(to), read_bytes(file))
    except OSError as error:
        raise SaveError(f"[import] {file} to {to}: {error.strerror}") from error


def _say_imported(config: Config, theirs: Theirs, run: RunFolder, parameters: int) -> None:
    """Print the imported model, notes about differences from the original, and commands that use the run."""
    print(f"{config.model.family}, {parameters:,} parameters: {run.step_folder(0)}")
    for name in () if config.model.family == "gpt2" else _DROPOUTS:
        rate = theirs.settings.get(name)
        if isinstance(rate, int | float) and rate:
            print(
                f"note: {name} of {rate:g} is left out: the {config.model.family} family has no dropout; "
                "training differs",
                file=sys.stderr,
            )
    if note := theirs.note():
        print(f"note: {note}", file=sys.stderr)
    print(f"  {shlex.join([*typed_program(), 'sample', f'--workdir={run.path}', '--prompt', '...'])}")
    print(f"  {shlex.join([*typed_program(), f'--config={run.path}/config.json', f'--workdir={run.path}'])}")
