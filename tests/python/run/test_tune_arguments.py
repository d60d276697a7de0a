"""The arguments of a tuning in its model card: fields that the user typed, and fields that a later start changed."""

from __future__ import annotations

from pathlib import Path

from mudd_core.config import Config, apply_overrides, split_words
from mudd_core.config.saved import to_dict
from mudd_core.run.store.json_files import write_json
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.tune_arguments import TuneArguments

TYPED = [
    "optim.lr=3e-4",
    "--weight-decay=0.1",  # the default of the field, but not of the command
    "train.eval_every=0",
    "train.stop_at=2",
    "train.recompute=true",
    "data.cache_dir=/fast/cache",
]


def after(config: Config, *words: str) -> Config:
    return apply_overrides(config, split_words(list(words), config))


def test_fields_are_named_with_the_values_of_now(tmp_path: Path) -> None:
    run, chosen = RunFolder(tmp_path), after(Config(), "optim.clip=0.5", "train.steps=12")
    asked = TuneArguments("models/base", "/home/me/chat.jsonl", "", TYPED)
    asked.keep(run)
    kept = after(chosen, "optim.lr=3e-4")  # fields that may change on resume are not kept
    write_json(run.asked_file, to_dict(kept))
    found = TuneArguments.of(run)
    assert found == asked
    assert found.options == ["--base=models/base", "--data=chat.jsonl"]
    now = after(kept, *(word for word in TYPED if "stop_at" not in word), "train.steps=20")
    assert found.fields(run, now) == [
        "optim.lr=0.0003",
        "optim.weight_decay=0.1",
        "train.eval_every=0",
        "train.recompute=true",
        "data.cache_dir=cache",
        "train.steps=20",
    ]


def test_a_run_of_an_older_version_has_none(tmp_path: Path) -> None:
    assert TuneArguments.of(RunFolder(tmp_path)) is None
