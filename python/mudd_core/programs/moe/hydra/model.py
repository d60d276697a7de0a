"""The model of a clm command, and the batches over which its losses are averaged.

model.config_path and model.name_or_path set its shape, weights and tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.regular_files import read_text
from mudd_core.base.types import Json
from mudd_core.config import Config, GPT2Config, MixtralConfig, ModelConfig, TransformerPPConfig, mixture_of
from mudd_core.config.arguments import argument
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.origins import Origin
from mudd_core.config.suggest import nearest
from mudd_core.data.sources.access import Access
from mudd_core.data.sources.hub_names import hub_folder
from mudd_core.interop.hf_settings import model_config
from mudd_core.programs.mesh_sizes import ranks_note, sequences
from mudd_core.programs.moe.keys import DEVICE_BATCH, GLOBAL_BATCH, LENGTH
from mudd_core.programs.moe.keys_model import NAME, RANDOM, SHAPE
from mudd_core.programs.moe.keys_values import flag_of, text_of
from mudd_core.programs.program import DEVICES
from mudd_core.programs.row import Values
from mudd_core.programs.table import Applied, Setting

_SCOPE = "model.aux_scope"
# The benchmark's run: sequence length, experiment, sequences per update, updates between validations.
BENCHMARK = (32768, "+experiment=gbs256_tpu", 256, 6)
# Models whose config.json is shipped in configs/clm.
_SHIPPED = {
    "gpt2": "gpt2.json",
    "openai-community/gpt2": "gpt2.json",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral87.json",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral822.json",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral822-instruct.json",
}
_NAME = f"[hydra] {NAME}"
# The files of a model on the hub: shape, weights, tokenizer.
_FILES = (
    "config.json",
    "*.safetensors",
    "*.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "*.model",
)


@dataclass(frozen=True)
class ModelChoice:
    """A model shape and the file that defines it. weights: a transformers folder; empty: initial weights."""

    model: ModelConfig
    file: Path
    weights: str = ""


def choose_model(keys: Values, shipped: Sequence[Path], access: Access) -> ModelChoice:
    """Return the model that the keys select. shipped: folders with the benchmark's config.json files."""
    path, name = text_of(keys, SHAPE), text_of(keys, NAME)
    if path:
        file = _settings_file(path, shipped)
        return ModelChoice(_read(file), file)
    random = flag_of(keys, RANDOM)
    try:
        folder = Path(name) if Path(name).is_dir() else hub_folder(name, _FILES, access, _NAME, "a folder")
    except UserError as error:
        if random and name in _SHIPPED:
            file = _settings_file(_SHIPPED[name], shipped)
            return ModelChoice(_read(file), file)
        hint = "" if name in _SHIPPED else nearest(name, _SHIPPED)
        raise UserError(
            f"{error}; or use initial weights, +{RANDOM}=true, with a shape that is known here "
            f"({', '.join(_SHIPPED)}) or named by {SHAPE}=FILE{hint}"
        ) from None
    if not (folder / "config.json").is_file():
        raise UserError(f"{_NAME}: expected a folder with config.json, and {folder} has none")
    return ModelChoice(_read(folder / "config.json"), folder / "config.json", "" if random else str(folder))


def _settings_file(name: str, shipped: Sequence[Path]) -> Path:
    asked = Path(name)
    places = (asked, asked / "config.json", *(folder / asked for folder in shipped))
    for place in places:
        if place.is_file():
            return place
    known = sorted({file.name for folder in shipped for file in folder.glob("*.json")})
    raise UserError(
        f"[hydra] {SHAPE}: no file '{name}'{nearest(asked.name, known)}; there are: {', '.join(known)}"
    )


def _read(file: Path) -> ModelConfig:
    """Read the shape in a config.json, and add the settings that the benchmark sets at run time."""
    try:
        settings = json.loads(read_text(file))
    except (OSError, ValueError, RecursionError) as error:
        raise FormatError(str(file), 0, str(error)) from None
    if not isinstance(settings, dict):
        raise FormatError(str(file), 0, f"expected an object, got {type(settings).__name__}")
    if settings.get("model_type") == "mixtral":
        settings["output_router_logits"] = True  # the benchmark trains with the balance loss
    try:
        return _shape(settings)
    except ValueError as error:
        raise UserError(f"[hydra] {file}: {error}") from None


def _shape(settings: Mapping[str, Json]) -> ModelConfig:
    found = model_config(settings)
    if isinstance(found, MixtralConfig):
        # Balance over each logical shard, as in configs/mixtral. A balance over the whole batch would need one
        # micro-batch.
        return replace(found, aux_scope="shard")
    if isinstance(found, GPT2Config):
        return replace(found, scale_residual_init=True)
    assert isinstance(found, TransformerPPConfig)
    return found


def imported_folder(weights: str, name: str) -> Path:
    """Return the work directory into which the weights of a folder are imported before the run starts."""
    folder = Path(weights).resolve()
    names = sorted(folder.glob("*.safetensors"))
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in names]
    digest = hashlib.sha256(repr((str(folder), facts)).encode()).hexdigest()
    return Path("runs") / "imported" / f"{name}-{digest[:12]}"


def fields_of_model(model: ModelConfig) -> list[str]:
    """Return the paths of a model's fields."""
    return [info.path for info in walk(model, "model.")]


def batch_notes(settings: Mapping[str, Setting], config: Config, devices: int, ranks: int) -> list[str]:
    """Return a note about the global batch if the command sets only the batch per device; otherwise no note.

    The note names the setting that multiplies the batch by a number of devices.
    """
    setting = settings.get(DEVICE_BATCH)
    whole = settings.get(GLOBAL_BATCH)
    if setting is None or not setting.word or devices > 1 or (whole is not None and whole.word):
        return []
    text = f"{setting.word}: one device here, so an update has {sequences(config.train.batch_size)}"
    length, experiment, size, every = BENCHMARK
    if config.train.seq_len == length and settings[LENGTH].word:
        text += (
            f"; {experiment} is the benchmark's run, with {size} sequences an update and a validation every {every} "
            f"updates, and {DEVICES}={size} sets that batch for this command"
        )
    else:
        text += f"; {DEVICES}=N sets the batch of N devices"
    return ["; ".join(filter(None, (text, ranks_note(devices, ranks))))]


def with_scope(applied: Applied) -> tuple[Applied, list[str]]:
    """Average the balance loss over the whole micro-batch, as the benchmark does, if it is one graph run.

    Otherwise return a line that says so.
    """
    config = applied.config
    mixture, typed = mixture_of(config.model), applied.origins.get(_SCOPE)
    if (
        mixture is None
        or not mixture.aux_coef
        or (typed is not None and argument(typed.word).option.endswith(_SCOPE))
    ):
        return applied, []
    if not config.train.micro_batch_size:
        changed: Config = replace_path(config, _SCOPE, "batch")
        origin = Origin("shard", typed.file if typed else "", typed.word if typed else "")
        return replace(applied, config=changed, origins={**applied.origins, _SCOPE: origin}), []
    return applied, [
        f"the balance loss averages over each of {config.train.shard_count()} shards ({_SCOPE}=shard): an update of "
        f"{sequences(config.train.batch_size)} has several micro-batches; the original averages it over a micro-batch"
    ]
