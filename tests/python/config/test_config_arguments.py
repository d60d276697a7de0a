"""Overrides of a config as arguments: grammars, suggestions, mistakes."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.cli.names import COMMANDS, OPTIONS
from mudd_core.config import (
    Config,
    apply_overrides,
    split_words,
)
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.foreign import SETTINGS
from mudd_core.config.overrides import field_path
from mudd_core.config.suggest import nearest_option


@pytest.mark.parametrize(
    "words",
    [
        ["--config.train.steps=77"],
        ["--config.train.steps", "77"],
        ["train.steps=77"],
        ["config.train.steps=77"],
        ["+train.steps=77"],
        ["++train.steps=77"],
        ["--steps", "77"],
        ["--steps=77"],
        ["--max-steps", "77"],
        ["--train.steps=77"],
        ["train.steps=7.7e1"],
        ["train.steps=5", "train.steps=77"],
    ],
)
def test_all_grammars_say_the_same(words: list[str]) -> None:
    assert mc.load_config("tiny.py", words) == replace_path(mc.load_config("tiny.py"), "train.steps", 77)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--batch_size=3"], "train.batch_size"),
        (["--batch-size", "3"], "train.batch_size"),
        (["--eval.batch-size", "3"], "eval.batch_size"),
        (["--seed=3"], "train.seed"),
        (["--vocab-size=300"], "data.vocab_size"),
        (["optim.learning_rate=3"], "optim.lr"),
        (["--optim.learning-rate=3"], "optim.lr"),
        (["--config.train.max_steps", "3"], "train.steps"),
    ],
)
def test_an_alias_or_a_leaf_of_several_sections_names_one_field(words: list[str], path: str) -> None:
    value = 300 if "vocab" in path else 3
    assert mc.load_config("tiny.py", words) == replace_path(mc.load_config("tiny.py"), path, value)


def test_a_command_looks_at_its_own_section_first() -> None:
    (found,) = split_words(["--seed=3"], Config(), first="sample")
    assert found.path == "sample.seed"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--version", ""),
        ("--model.dropout=1", ""),
        ("--hidden-size=3", "--d-model"),
        ("--lerning-rate=3", "--learning-rate"),
        ("--train.lr=3", "optim.lr"),
        ("--num-layers=3", "--n-layer"),
        ("optim.lerning_rate=3", "optim.lr"),
        ("trian.stepz=3", "train.steps"),
        ("eval.max_batch_size=3", "eval.batch_size"),
        ("dropout=3", ""),
        ("--batch=4", "train.batch_size"),  # not log.batches
        ("train.batch=4", "train.batch_size"),
        ("--heads=4", "--n-head"),  # not train.threads
        ("model.heads=4", "model.n_head"),
        ("--text=notes.txt", "--path"),  # not mesh.context
        ("--file=notes.txt", "--path"),  # not train.profile
        ("data.file=notes.txt", "data.path"),
        ("--vocab=300", "data.vocab_size"),
    ],
)
def test_suggestions_are_fair_or_none(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", [word])
    assert ("did you mean" in str(caught.value)) == bool(hint)
    assert f"did you mean '{hint}'?" in str(caught.value) or not hint


def test_values_follow_the_type_of_the_field() -> None:
    config = mc.load_config(
        "tiny.py", ["data.path=007", "optim.lr=3", "model.tie_embeddings=on", "name='a=b'"]
    )
    assert config.data.path == "007"
    assert config.optim.lr == 3.0 and isinstance(config.optim.lr, float)
    assert config.model.tie_embeddings is True
    assert config.name == "a=b"
    assert mc.load_config("tiny.py", ["--debug-nonfinite", "--steps", "9"]).train.debug_nonfinite is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.stesp=3"], "did you mean 'train.steps'"),
        (["--config.train.stesp=3"], "did you mean 'train.steps'"),
        (["+train.stesp=3"], "did you mean 'train.steps'"),
        (["--step", "3"], "did you mean '--steps'"),
        (["steps=3"], "did you mean 'train.steps'"),
        (["model.learning_rte=3"], "unknown field 'model.learning_rte'"),
        (["train=3"], "unknown field 'train'"),
        (["train.steps=ten"], "train.steps: expected a whole number, got 'ten'"),
        (["train.steps=1.5"], "train.steps: expected a whole number"),
        (["train.steps="], "train.steps: expected a whole number"),
        (["optim.lr=nan"], "optim.lr: expected a finite number"),
        (["model.tie_embeddings=2"], "expected true or false"),
        (["train.steps"], "neither a command nor name=value"),
        (["~train.steps"], "cannot be removed"),
        (["--steps"], "expected a value after it"),
        (["train.steps=0"], "train.steps: expected at least 1, got 0"),
        (["optim.schedule=cos"], "expected one of constant, cosine, linear, wsd"),
        (["model.d_model=130"], "multiple of model.n_head (4), got 130"),
        (["model.n_kv_head=3"], "divisor of model.n_head"),
        (["model.d_head=15"], "even width"),
        (["train.logical_shards=6"], "power of two, got 6"),
        (["train.logical_shards=2048"], "at most 1024, got 2048"),
        (["train.batch_size=12", "train.micro_batch_size=2"], "12 is no multiple of the 8 shards"),
        (["train.micro_batch_size=-1"], "train.micro_batch_size: expected at least 0"),
        (["optim.beta2=1"], "less than 1"),
        (["model.max_seq_len=64"], "at most model.max_seq_len (64), got 128"),
        (["model.family=gpt2"], "expected one of transformer_pp"),
        (["name=../x"], "plain folder name"),
        (["train.batch_size=9223372036854775807"], "train.batch_size: expected at most 2147483647"),
        (["model.n_layer=2147483647"], "model.n_layer: expected at most 10000"),
        (["train.batch_size=100000000"], "train.batch_size: expected at most 2147483647 tokens"),
        (["eval.batch_size=100000000"], "eval.batch_size: expected at most 2147483647 tokens"),
        (["train.steps=9223372036854775808"], "train.steps: expected at most 2147483647"),
        (["train.seq_len=1600001"], "train.seq_len: expected at most 1600000"),
        (["train.seed=18446744073709551616"], "train.seed: expected at most 18446744073709551615"),
        (["sample.seed=18446744073709551616"], "sample.seed: expected at most 18446744073709551615"),
        (["train.threads=1000"], "train.threads: expected at most 256"),
        (["sample.top_p=0"], "sample.top_p: expected more than 0"),
    ],
)
def test_mistakes_are_named(words: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", words)
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 2


def test_overrides_must_be_a_list() -> None:
    with pytest.raises(TypeError, match="expected a dict of fields or a list"):
        mc.load_config("tiny.py", "train.steps=3")


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_words_give_overrides_or_a_usage_error(words: list[str]) -> None:
    with contextlib.suppress(UserError):
        split_words(words, Config())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["tunes", "--help"], "unknown command 'tunes'"),
        (["help", "tunes"], "unknown command 'tunes'"),
        (
            ["--config=tiny.py", "--wandb"],
            "'--wandb' is log.wandb=online here; type: python3 launch.py --config=tiny.py ",
        ),
        (["--config=tiny.py", "optim.name=adam"], "got 'adam'; did you mean 'adamw'?"),
    ],
)
def test_a_suggestion_is_never_the_name_that_was_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


def test_a_flag_without_its_value_has_the_values_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=tiny.py", "--plan", "--precision"]) == 2
    assert "--precision: expected one of fp32, bf16 after it" in capsys.readouterr().err
    assert main(["--config=tiny.py", "--plan", "--steps"]) == 2
    assert "--steps: expected a value after it" in capsys.readouterr().err


def test_every_field_has_a_short_option() -> None:
    infos = list(walk(Config()))
    without = {info.path for info in infos if field_path(info.path.rpartition(".")[2], infos) is None}
    of_adapters = {info.path for info in infos if info.path.startswith("lora.")}
    assert without == {"mesh.data", *of_adapters}  # --data means the section
    for info in (info for info in infos if info.path not in of_adapters):
        name = "--" + info.path.rpartition(".")[2].replace("_", "-")
        assert f"'{name}'" not in nearest_option(name, infos, [])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--temperature=-1"], r"--temperature \(sample\.temperature\): expected at least 0, got -1"),
        (["--temperature", "hot"], r"--temperature \(sample\.temperature\): expected a number, got 'hot'"),
        (["--top-p=1.5"], r"--top-p \(sample\.top_p\): expected at most 1"),
        (["--top-p=0"], r"--top-p \(sample\.top_p\): expected more than 0"),
        (["--max-tokens=-3"], r"--max-tokens \(sample\.max_tokens\): expected at least"),
        (["--sample.top_k=-1"], r"\[config\] sample\.top_k: expected at least 0, got -1"),
        (["sample.top_k=-1"], r"\[config\] sample\.top_k: expected at least 0, got -1"),
    ],
)
def test_a_refused_value_names_the_flag_that_was_typed(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config=tiny.py", "--plan", *words]) == 2
    assert re.search(named, capsys.readouterr().err)


def test_settings_of_other_programs_name_the_field_or_nothing() -> None:
    config = mc.load_config("tiny.py")
    infos = list(walk(config))
    fields = {info.path for info in infos}
    known = [*COMMANDS, *OPTIONS]
    for theirs, ours in SETTINGS.items():
        assert ours in ("", *OPTIONS) or ours in fields, (theirs, ours)
        for word in (f"{theirs}=7", f"--{theirs}=7", f"--{theirs.replace('_', '-')}=7"):
            if word[:-2] in OPTIONS or field_path(word[:-2].lstrip("-"), infos) == ours:
                continue  # an option or a field of mudd_core, which accepts the value
            with pytest.raises(UserError) as caught:
                apply_overrides(config, split_words([word], config, known))
            told = str(caught.value)
            (hint,) = re.findall(r"did you mean '(.*)'", told) or [""]
            path = field_path(hint[2:], infos) if hint.startswith("--") else None
            assert ours in (path or hint, hint), (word, told)


def test_the_name_of_a_section_is_no_short_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=tiny.py", "--plan", "--data", "texts"]) == 2
    assert (
        "'--data' is data.path here: expected a text file or a folder of text files, got 'texts'"
        in capsys.readouterr().err
    )
