"""Check the fields of a fine-tuning before its base is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.members import object_in
from mudd_core.base.other_folders import other_folder, require_no_gguf
from mudd_core.base.paths import local
from mudd_core.base.storage import is_url
from mudd_core.config import (
    Config,
    DataConfig,
    ModelConfig,
    StartConfig,
    apply_overrides,
    check_fields,
    split_words,
    typed_names,
)
from mudd_core.config.fields import replace_path
from mudd_core.config.loss_rules import pair_field_faults
from mudd_core.config.rules import tune_faults
from mudd_core.config.schema import LOSSES
from mudd_core.data.chat.conversations import require_records
from mudd_core.data.chat.renderer import require_jinja2
from mudd_core.data.chat.templates import find_template
from mudd_core.data.sources.splits import sources_of
from mudd_core.engine.lora import adapters_for
from mudd_core.interop.hf_settings import model_config
from mudd_core.interop.peft_folder import read_adapter, require_adapter
from mudd_core.run.build.rows import teacher_file
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import CONFIG, RunFolder

CHAT = "chat"  # the pipeline
_BASE = "[tune] --base"
ADAPTER = "[tune] --adapter"


def loss_word(kind: str, argument: str) -> str:
    """Return the override for a loss; raise UserError for an unknown one. argument: its name for messages."""
    if kind not in LOSSES:
        raise UserError(f"{argument}: expected dpo, orpo, or tokens for conversations, got {kind!r}")
    return f"loss.kind={kind}"


def require_fields(words: Sequence[str], base: str) -> Config | None:
    """Return the config of these fields; None for a base whose config cannot be read: the import names that mistake.

    Raise UserError for unknown fields, wrong values, and fields of the model. base: the value of --base.
    """
    source = RunFolder(local(base, _BASE))
    require_no_gguf(source.path, f"{_BASE}:", "a folder of Hugging Face or a run")
    model = _model_of(source)
    if model is None:
        if (other := other_folder(source.path)) is not None and other.base is not None:
            raise UserError(f"{_BASE}: expected a model, got {other.text}; {other.way_out}")
        return None
    data = DataConfig(pipeline=CHAT)
    config = Config(model=model, data=data, start=StartConfig(load_parameters_path=base))
    config = replace_path(config, "tune.method", "lora")
    overrides = split_words(list(words), config)
    config = apply_overrides(config, overrides)
    require_model(config, model)
    require_conversations(config)
    check_fields(config, typed_names(overrides), lambda one: tune_faults(one) + pair_field_faults(one))
    teacher_file(config)  # raises UserError for another file
    if config.tune.method == "lora":
        adapters_for(_sized(model), config.lora)
    return config


def require_adapter_of(config: Config | None, adapter: str) -> None:
    """Raise UserError or FormatError if a folder of PEFT has no usable adapters, or adapters of another base.

    config: the result of require_fields.
    """
    folder = local(adapter, ADAPTER)
    if config is None:
        require_adapter(folder, ADAPTER)
    else:
        read_adapter(folder, _sized(config.model), ADAPTER)


def _sized(model: ModelConfig) -> ModelConfig:
    """Return the model with sizes that the saved model of a run leaves to its data; they decide no adapted layer."""
    return replace(model, vocab_size=model.vocab_size or 1, max_seq_len=model.max_seq_len or 1)


def require_template(config: Config, base: str) -> None:
    """Raise UserError if a folder of Hugging Face has no chat template, or if jinja2 is missing."""
    source = RunFolder(local(base, _BASE))
    if not source.is_own_run:
        find_template(replace(config.data, tokenizer=str(source.path)), None)
    require_jinja2()


def require_model(config: Config, model: ModelConfig) -> None:
    """Raise UserError if arguments changed the model of the base."""
    if config.model != model:
        raise UserError("[tune] model: the base decides the model; leave its fields out")


def require_conversations(config: Config) -> None:
    """Raise UserError if arguments replaced the conversations of --data."""
    for name, changed in (("mix", bool(config.data.mix)), ("pipeline", config.data.pipeline != CHAT)):
        if changed:
            raise UserError(
                f"[tune] data.{name}: tune reads the conversations of --data alone; leave data.{name} out"
            )


def require_data(path: str) -> None:
    """Raise UserError if a path has no files of records; a URL is not requested."""
    if is_url(path):
        return
    try:
        found = sources_of(DataConfig(pipeline=CHAT, path=path))
        require_records(found.train[0], found.format)
    except UserError as error:
        raise UserError(str(error).replace("[data.path]", "[tune] --data:")) from error


def _model_of(source: RunFolder) -> ModelConfig | None:
    """Return the model of a run or of a folder of Hugging Face; None if its config cannot be read."""
    try:
        if source.is_own_run:
            return read_saved_config(source).model
        return model_config(object_in(Path(source.path, CONFIG)))
    except (UserError, FormatError, ValueError):
        return None
