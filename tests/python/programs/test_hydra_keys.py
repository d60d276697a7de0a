"""Every mapped key of the benchmark's configs has an effect: configs with and without it differ."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import documents
from mudd_core.base.errors import UserError
from mudd_core.config.fields import walk
from mudd_core.programs.detect import resolve
from mudd_core.programs.program import CommandLine, rows_of
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row
from places import TESTS

BASE = ("model.config_path=mixtral80.json",)
# Key -> the other arguments of the command, and the argument with the key.
WORDS: dict[str, tuple[tuple[str, ...], str]] = {
    "model": ((), "model={config_path:mixtral80.json}"),
    "sched": (BASE, "sched=CosineAnnealing"),
    "dataset": (BASE, "dataset=wikitext"),
    "experiment": (BASE, "+experiment=gbs256_tpu"),
    "hydra.run.dir": (BASE, "hydra.run.dir=/elsewhere"),
    "optimizer": (BASE, "optimizer=SGD"),
    "shuffle": (BASE, "shuffle=false"),
    "do_first_eval": (BASE, "do_first_eval=true"),
    "gradient_accumulation_steps": ((*BASE, "global_train_batch_size=4"), "gradient_accumulation_steps=2"),
    "sched.name": (BASE, "sched.name=CosineAnnealing"),
    "sched.warmup_ratio": (BASE, "sched.warmup_ratio=0.5"),
    "sched.warmup_steps": ((*BASE, "~sched.warmup_ratio"), "+sched.warmup_steps=5"),
    "sched.min_lr": ((*BASE, "sched=CosineAnnealing"), "sched.min_lr=1e-5"),
    "model.config_path": (("model.name_or_path=gpt2",), "model.config_path=mixtral80.json"),
    "model.name_or_path": (BASE, "model.name_or_path=gpt2"),
    "model.random_init": (("model.name_or_path=gpt2",), "+model.random_init=true"),
    "model.dtype": (BASE, "model.dtype=float32"),
    "dataset.dataset_name": (BASE, "dataset.dataset_name=wikitext"),
    "dataset.dataset_config_name": (
        (*BASE, "dataset=wikitext"),
        "dataset.dataset_config_name=wikitext-103-raw-v1",
    ),
}
MAPPED = [row for row in rows_of("hydra").values() if row.fate == "mapped"]


@pytest.fixture(autouse=True, scope="module")
def hub() -> Iterator[None]:
    with documents.hub():
        yield


def resolved(*words: str) -> Resolved:
    found = resolve(CommandLine("clm", "", words, {}, os.environ))
    assert found is not None
    return found


def command(row: Row) -> tuple[tuple[str, ...], str]:
    value = row.default if isinstance(row.default, int | float) and row.default > 0 else 3
    number = value * 2 if isinstance(value, int) else value / 2
    text = "/data" if row.default is None or isinstance(row.default, str) else str(number)
    text = "9" if row.name == "n_eval_examples" else text
    return WORDS.get(row.name, (BASE, f"{row.name}={text}"))


@pytest.mark.parametrize("row", MAPPED, ids=lambda row: row.name)
def test_a_mapped_key_changes_what_the_command_comes_to(row: Row) -> None:
    others, word = command(row)
    if row.name == "model":
        before, after = resolved("model.name_or_path=gpt2"), resolved("model.name_or_path=gpt2", word)
    else:
        before, after = resolved(*others), resolved(*others, word)
    assert (before.config, before.workdir, before.writes.keys()) != (
        after.config,
        after.workdir,
        after.writes.keys(),
    )
    old = {info.path: info.value for info in walk(before.config)}
    changed = {info.path for info in walk(after.config) if info.value != old.get(info.path)}
    named = {path for path in row.fields if not path.startswith("(")}
    assert changed & named or not named, (changed, named)


@pytest.mark.parametrize("row", [row for row in rows_of("hydra").values() if row.fate == "noted"])
def test_a_noted_key_is_one_line_and_changes_nothing(row: Row) -> None:
    base = (*BASE, "model.dtype=float32") if row.name == "full_precision" else BASE
    plain, value = resolved(*base), "[X]" if isinstance(row.default, list) else "7"
    mark = "" if row.name not in ("config_path", "dry_run") else "+"
    after = resolved(*base, f"{mark}{row.name}={'true' if base != BASE else value}")
    assert after.config == plain.config
    assert [note for note in after.notes if row.text in note] and len(after.notes) == len(plain.notes) + 1


@pytest.mark.parametrize("words", [("full_precision=true",), ("full_precision=True", "model.dtype=bfloat16")])
def test_full_matmuls_need_float32(words: tuple[str, ...]) -> None:
    with pytest.raises(
        UserError, match=r"full_precision: expected model.dtype=float32 with full_precision=True"
    ):
        resolved(*BASE, *words)
    assert resolved(*BASE, "full_precision=true", "model.dtype=float32").config.train.precision == "fp32"


def test_a_limit_of_validation_documents_is_that_of_c4_mlperf_alone() -> None:
    for limit, count in (("100", 100), ("0", 0), ("null", 0)):
        assert resolved(*BASE, f"n_eval_examples={limit}").config.eval.documents == count
    found = resolved(*BASE, "dataset=wikitext", "n_eval_examples=100")
    assert found.config.eval.documents == 0
    assert any(
        note.startswith("n_eval_examples=100: read only with dataset=c4_mlperf") for note in found.notes
    )
    assert not [n for n in resolved(*BASE, "dataset=wikitext").notes if "n_eval_examples" in n]


def test_a_folder_beside_a_data_set_of_the_hub_is_noted() -> None:
    """Check the note: the benchmark's program reads these folders only for c4_mlperf."""
    assert not [
        note for note in resolved(*BASE, "dataset.dataset_name=wikitext").notes if "read only" in note
    ]
    for mark, word in (("+", "train_dataset_path=/x"), ("+", "eval_dataset_path=/x")):
        notes = resolved(*BASE, "dataset=wikitext", f"{mark}dataset.{word}").notes
        assert f"dataset.{word}: read only with dataset=c4_mlperf, not with wikitext" in notes
        assert not [n for n in resolved(*BASE, f"dataset.{word}").notes if "read only" in n]


@pytest.mark.parametrize("row", [row for row in rows_of("hydra").values() if row.fate == "refused"])
def test_a_refused_key_names_itself_and_the_way_out(row: Row) -> None:
    with pytest.raises(ValueError, match=rf"{row.name}=2: not supported; ") as caught:
        resolved(*BASE, f"{row.name}=2")
    assert row.text in str(caught.value)


def test_the_names_of_the_page_are_all_in_the_table() -> None:
    text = (TESTS / "data" / "documents" / "hydra_keys.txt").read_text()
    names = [line.strip() for line in text.splitlines() if line.strip() and line[0] != "#"]
    assert len(names) > 60 and not set(names) - rows_of("hydra").keys()
