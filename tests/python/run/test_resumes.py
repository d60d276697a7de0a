"""Runs of every family, pipeline and kind of training end in some way and resume with the bits of an unbroken run.

A table row has a config recipe, the ways in which the run ends, and the steps. run_ends.py defines the ways and the
comparison. test_stops.py tests every way at every step with an exact engine; test_kill.py and test_signals.py test
whole processes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import pytest

import id_cases
import run_ends
import streaming_cases
from chat_cases import chat_config, random_chat, write_folder, write_jsonl
from fake_runs import rows_of
from mudd_core.config import Config, load_config
from mudd_core.run.loop.trainer import Trainer
from own_cases import ADAMW, STATE_SPACE, plus_file
from run_ends import End, Killer, Recipe, Run, require_same_end
from tiny_run_config import __file__ as TINY

killer, small = run_ends.killer, streaming_cases.small
LONG = ("train.log_every=1", "log.batches=true")
SHORT = ("train.steps=8", "train.save_every=3", "train.eval_every=4", "optim.warmup_steps=1", *LONG)
IDS = ("train.steps=20", "train.save_every=4", *LONG)
STREAM = ("data.workers=2", "train.steps=24", "train.save_every=7", *LONG)


class Sources:
    """Folders with the data of the recipes, each written once."""

    def __init__(self, tiny_text: Path, folder: Path) -> None:
        self.tiny_text, self.folder = tiny_text, folder
        self._ids: dict[str, list[str]] = {}

    @cached_property
    def texts(self) -> Path:
        """Return three jsonl files for training and one for validation."""
        texts = streaming_cases.write_texts(self.folder / "texts", (90, 3, 140))
        streaming_cases.write_texts(texts / "eval", (30,), 9)
        return texts

    @cached_property
    def chats(self) -> Path:
        """Return a tokenizer and 60 conversations."""
        folder = self.folder / "chat"
        folder.mkdir()
        write_folder(folder / "tokenizer", "llama3")
        draw = random.Random(3)
        write_jsonl(folder / "chat.jsonl", [{"messages": random_chat(draw)} for _ in range(60)])
        return folder

    @cached_property
    def base(self) -> Path:
        """Return a finished run to start from."""
        folder = self.folder / "base"
        with Trainer(tiny(self, "train.steps=2"), folder, progress=None) as trainer:
            trainer.fit()
        return folder

    @cached_property
    def plus(self) -> str:
        """Return Transformer++ as the user's own architecture."""
        return f"{plus_file(self.folder)}:Plus"

    def ids(self, pipeline: str) -> list[str]:
        """Return the arguments for a pipeline of ready ids."""
        if pipeline not in self._ids:
            self._ids[pipeline] = id_cases.words_made(pipeline, self.folder / pipeline)
        return self._ids[pipeline]


def tiny(sources: Sources, *words: str) -> Config:
    data = (f"data.path={sources.tiny_text}", f"data.cache_dir={sources.tiny_text.parent / 'cache'}")
    return load_config(TINY, [*data, *SHORT, *words])


def family(name: str, *fields: str) -> Recipe:
    """Return the recipe of a family's tiny config with even smaller sizes."""
    sizes = [
        "model.n_layer=2",
        "model.d_model=32",
        "train.batch_size=4",
        "train.seq_len=32",
        "train.threads=1",
    ]
    data = ["data.tokenizer=bytes", "train.logical_shards=4", "eval.max_batches=2", "sample.max_tokens=1"]

    def recipe(sources: Sources, *words: str) -> Config:
        places = [f"data.path={sources.tiny_text}", f"data.cache_dir={sources.tiny_text.parent / 'cache'}"]
        return load_config(f"{name}/tiny.py", [*sizes, *data, *places, *SHORT, *fields, *words])

    return recipe


def trained(*words: str) -> Recipe:
    """Return the recipe of tiny_run_config.py with these arguments."""
    return lambda sources, *more: tiny(sources, *words, *more)


def adapters(*fields: str) -> Recipe:
    lora = ("tune.method=lora", "lora.rank=4", "lora.alpha=8", *fields)
    return lambda sources, *more: tiny(sources, *lora, f"start.load_parameters_path={sources.base}", *more)


def own(field: str) -> Recipe:
    return lambda sources, *more: tiny(sources, f"{field}={sources.plus}", *more)


def documents(kind: str, cache: str) -> Recipe:
    """Return the recipe of a pipeline with data.cache=full or stream; with stream the folder never gets a cache."""

    def recipe(sources: Sources, *words: str) -> Config:
        kept = next((word for word in reversed(words) if word.startswith("data.cache=")), cache)
        given = (f"data.eval_path={sources.texts}/eval", *STREAM, *words)
        return streaming_cases.config_of(kind, sources.texts, kept.removeprefix("data.cache="), *given)

    return recipe


def ids(pipeline: str, *fields: str) -> Recipe:
    return lambda sources, *words: load_config("tiny.py", [*sources.ids(pipeline), *fields, *IDS, *words])


def chat(sources: Sources, *words: str) -> Config:
    return chat_config(sources.chats, sources.chats / "chat.jsonl", *LONG, *words)


@dataclass(frozen=True)
class Row:
    """A run that ends and resumes. also: arguments for a second unbroken run, which must be equal."""

    recipe: Recipe
    ends: tuple[End, ...]
    also: tuple[str, ...] = ()


STOP, KILL, SAVE = (partial(End, way) for way in ("train.stop_at", "SIGKILL", "save()"))
ONE = ("train.micro_batch_size=1",)
MUDD = (
    "model.n_head=2",
    "model.ffn_realloc=false",
    "model.d_ff=24",
    "model.prenorm=true",
    "model.postnorm=true",
)
EXPERTS = ("model.n_expert=4", "model.aux_coef=0.02", "model.jitter=0.1")
ROWS = {
    # Families.
    "transformer_pp": Row(trained(), (STOP(2), KILL(5), End("Ctrl-C", 6), End("request", 7))),
    "gpt2": Row(family("gpt2", "model.n_head=2", "model.attn_dropout=0.1"), (STOP(2), KILL(5))),
    "muddformer": Row(family("muddformer", *MUDD), (STOP(1), STOP(3), KILL(7))),
    "muddformer with experts": Row(family("muddformer", *MUDD, *EXPERTS), (STOP(1), STOP(3), KILL(7))),
    "muddformer killed in a save": Row(
        family("muddformer", *MUDD, *EXPERTS, "train.save_every=1"), (End("SIGKILL in a save", 2),)
    ),
    "tokenformer": Row(family("tokenformer", "model.n_head=2", "model.drop_path=0.1"), (STOP(2), KILL(5))),
    "mup": Row(
        family("mup", "model.d_head=16", "model.d_base=16", "model.qk_scale=0.0625"), (STOP(2), KILL(5))
    ),
    "mixtral": Row(
        family("mixtral", "model.n_head=2", "model.jitter=0.1", "model.aux_coef=0.02"), (STOP(5), KILL(7))
    ),
    "an architecture of the user's": Row(own("model.family"), (STOP(3),), ("model.family=transformer_pp",)),
    "a state-space architecture": Row(trained(f"model.family={STATE_SPACE}"), (STOP(3),)),
    # Optimizers, types and trained weights.
    "an optimizer of the user's": Row(trained(f"optim.name={ADAMW}"), (STOP(3),)),
    "groups": Row(trained("optim.groups=lion: head, lr_factor=0.3"), (STOP(2), KILL(7))),
    "bf16": Row(trained("train.precision=bf16", "optim.moment_dtype=bf16"), (STOP(2), KILL(7))),
    "some weights": Row(trained("train.trainable=blocks.*.attn.*"), (STOP(3),)),
    "adapters": Row(adapters("lora.dropout=0.1"), (STOP(3), KILL(7))),
    "pissa": Row(adapters("lora.init=pissa"), (STOP(3),)),
    "pissa in bf16": Row(adapters("lora.init=pissa", "train.frozen_dtype=bf16"), (STOP(3),)),
    # Pipelines.
    "chat": Row(chat, (STOP(3),), ONE),
    "pile": Row(
        ids("pile", "data.files_per_group=1", "data.buffer=3"), (SAVE(3), *map(KILL, (9, 13, 18))), ONE
    ),
    "megatron": Row(ids("megatron"), (SAVE(3), *map(KILL, (7, 12, 19))), ONE),
    "ids": Row(ids("ids"), (SAVE(3), *map(KILL, (5, 14, 16))), ONE),
    "features": Row(ids("features"), (SAVE(3), *map(KILL, (11, 12, 17))), ONE),
    "synthetic": Row(ids("synthetic"), tuple(map(KILL, (6, 13, 18))), ONE),
    **{
        f"{kind}, {cache}": Row(documents(kind, cache), ends, (f"data.cache={other}",))
        for kind, step in (("pack", 18), ("rows", 9), ("blocks", 21))
        for cache, other, ends in (
            ("stream", "full", (SAVE(3, ("data.cache=full",)), KILL(step))),
            ("full", "stream", (SAVE(3, ("data.cache=stream",)), KILL(step + 2))),
        )
    },
}


@pytest.fixture(scope="module")
def sources(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    return Sources(tiny_text, tmp_path_factory.mktemp("sources"))


@pytest.mark.parametrize("name", ROWS)
def test_a_run_that_ended_has_the_bits_and_rows_of_an_unbroken_one(
    name: str, sources: Sources, killer: Killer, memory_path: Path
) -> None:
    row = ROWS[name]
    recipe = partial(row.recipe, sources)
    whole = Run(recipe, "real", memory_path / "whole").finish()
    require_same_end(Run(recipe, "real", memory_path / "parts", killer), row.ends, whole)
    if row.also:
        other = Run(partial(recipe, *row.also), "real", memory_path / "other").finish()
        assert other.final_hash == whole.final_hash and rows_of(other.folder) == rows_of(whole.folder)
