"""The config that a run resumes with: the saved one, with what the user may change."""

from __future__ import annotations

from mudd_core.config import Config, Difference, differences, merge_for_resume
from mudd_core.config.fields import replace_path
from mudd_core.run.store.extension import extended, with_more_epochs

TRAINED = "bpe"  # data.tokenizer that names no vocabulary: it is trained on the text


def resumed_config(saved: Config, asked: Config, done: int) -> tuple[Config, list[Difference]]:
    """Return the saved config with the asked free fields, and what they change. done: updates of the run so far.

    Raises UserError with the list of fields that must not differ.
    """
    asked = with_saved_tokenizer(saved, asked)
    if asked.train.epochs and asked.train.epochs == saved.train.epochs:  # resolved at the first start
        asked = replace_path(asked, "train.steps", saved.train.steps)
    if (
        saved.tune.method == "lora" and asked.start.load_parameters_path
    ):  # its hash is compared, not its place
        path = asked.start.load_parameters_path
        saved = replace_path(saved, "start.load_parameters_path", path)
    longer = with_more_epochs(extended(saved, asked, done), asked)
    config, changed = merge_for_resume(longer, asked)
    return config, changed if longer is saved else [*differences(saved, longer), *changed]


def with_saved_tokenizer(saved: Config, asked: Config) -> Config:
    """Return the asked config with the tokenizer that the first start of the run took from its source."""
    if asked.data.tokenizer != TRAINED or not saved.start.load_parameters_path:
        return asked
    result: Config = replace_path(asked, "data.tokenizer", saved.data.tokenizer)
    return result
