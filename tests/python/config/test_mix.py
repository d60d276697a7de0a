"""The fields of a mixture: their grammar, mappings of a config file, and the messages of wrong ones."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, DataConfig, load_config
from mudd_core.config.data import with_strings
from mudd_core.config.mix import integer_weights, parse_phases, parse_weights
from mudd_core.config.mix_sources import source_config, source_names, weights_by_sample
from mudd_core.config.saved import from_dict, to_json

FILES = ["data.sources.web.path=a b", "data.sources.code.path=src"]


def mixed(*words: str, mix: str = "web:0.7,code:0.3") -> Config:
    return load_config("tiny.py", [f"data.mix={mix}", *FILES, *words])


def test_weights_become_the_smallest_integers() -> None:
    for text, wanted in (
        ("web:0.7,code:0.2,own:0.1", [7, 2, 1]),
        ("a:1/3,b:2/3", [1, 2]),
        ("a:70,b:30", [7, 3]),
        ("a:1e-3,b:.999", [1, 999]),
        ("a:0,b:2", [0, 1]),
    ):
        weights = parse_weights(text)
        assert integer_weights(list(weights), weights) == wanted


@pytest.mark.parametrize("prefix", ["", "--", "--config."])
def test_options_of_sources_in_each_grammar(prefix: str) -> None:
    words = [f"{prefix}data.sources.web.path=a b", f"{prefix}data.sources.web.epochs=2", *FILES[1:]]
    config = load_config("tiny.py", ["data.mix=web:1,code:1", "data.column=body", *words])
    web = source_config(config, "web").data
    assert (web.path, web.epochs, web.column, web.mix, web.sources) == ("a b", 2, "body", "", "")
    assert source_config(config, "code").data.path == "src"
    assert config.data.sources == "code.path=src 'web.path=a b' web.epochs=2"


def test_mappings_in_python_and_json_equal_the_strings() -> None:
    wanted = mixed("data.mix_phases=5:code:1;9:web:1,code:2")
    mix, phases = {"web": 0.7, "code": 0.3}, {5: {"code": 1}, 9: {"web": 1, "code": 2}}
    sources = {"web": {"path": "a b"}, "code": {"path": "src"}}
    given = {"mix": mix, "mix_phases": phases, "sources": sources}
    assert load_config("tiny.py", {"data": given}).data == wanted.data  # type: ignore[dict-item]
    changed = wanted.replace({"data.mix": {"web": 1 / 3, "code": 2 / 3}, "data.sources.web.epochs": 3})
    assert weights_by_sample(changed)[0] == (0, [1, 2])
    assert source_config(changed, "web").data.epochs == 3
    raw = json.loads(to_json(wanted))
    assert from_dict(raw) == wanted
    raw["data"] |= {"mix": mix, "sources": sources}
    assert from_dict(raw) == wanted
    data = DataConfig(sources={"web": {"shuffle": "off", "epochs": 1}})  # type: ignore[arg-type]
    assert with_strings(data).sources == "web.epochs=1 web.shuffle=off"


def test_phases_start_at_samples() -> None:
    config = mixed("data.mix_phases=5:code:1;9:web:1,code:2", "train.batch_size=4")
    assert weights_by_sample(config) == [(0, [7, 3]), (20, [0, 1]), (36, [1, 2])]
    assert source_names(config) == ("web", "code")
    assert parse_phases("5:code:1")[0].weights == {"code": Fraction(1)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data.mix=web:-1,code:1"], "data.mix: expected a finite weight of at least 0 for web"),
        (["data.mix=web:nan,code:1"], "data.mix: expected a finite weight of at least 0 for web"),
        (["data.mix=web:1/0,code:1"], "data.mix: expected a denominator above 0 for web"),
        (["data.mix=web:0,code:0"], "data.mix: expected at least one weight above 0"),
        (["data.mix=web"], "data.mix: expected NAME:WEIGHT"),
        (["data.mix=web:1,web:2"], "data.mix: expected one weight for each source, got two for web"),
        (["data.mix=a/b:1"], "data.mix: expected a name of letters"),
        (["data.mix=web:1/2147483648,code:1"], "data.mix: expected weights that scale to integers"),
        (["data.mix=web:1,own:1"], "the source own has no files; set data.sources.own.path=FILES"),
        (["data.mix=web:1,codes:1"], "the source codes has no files; did you mean 'code'"),
        (["data.mix="], "data.mix: expected weights, such as web:0.7,code:0.3, because data.sources is set"),
        (["data.sources.web.path="], "data.sources.web.path: expected the files of the source web"),
        (["data.sources.web.pth=a"], "unknown option 'pth' of the source web; did you mean path?"),
        (["data.sources.web.tokenizer=a"], "no option of a source, set data.tokenizer for all of them"),
        (["data.sources.web.epochs=x"], "data.sources.web.epochs: expected a whole number, got 'x'"),
        (["data.sources.web.epochs=-1"], "data.sources.web.epochs: expected at least 0, got -1"),
        (["data.sources.web.format=jsn"], "data.sources.web.format: expected one of .* did you mean 'json"),
        (["data.mix_phases=5:own:1"], "data.mix_phases: the source own is not in data.mix; add own:0"),
        (["data.mix_phases=5:web:1;5:web:1"], "data.mix_phases: expected ascending steps above 0"),
        (["data.mix_phases=web:1"], "data.mix_phases: expected STEP:NAME:WEIGHT"),
        (["data.path=x"], "data.path: expected none with data.mix.*set data.sources.web.path"),
        (["data.pipeline=synthetic"], "data.pipeline: expected text, .* with data.mix, got synthetic"),
        (["data.pipeline=pile", "model.vocab_size=9"], "with data.mix, got pile"),
        (["data.pipeline=own.py:reader"], "with data.mix, got own.py:reader"),
        (["loss.teacher=x"], "loss.teacher: expected no teacher with data.mix"),
        (["train.epochs=1"], "train.epochs: expected an end of data.mix; set data.mix_until=first"),
        (
            ["data.cache=stream", "data.pipeline=pack", "data.tokenizer=bytes", "data.mix_until=all"],
            "data.mix_until: all needs the sizes of the sources",
        ),
    ],
)
def test_wrong_fields_are_refused_with_the_remedy(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_config("tiny.py", ["data.mix=web:0.7,code:0.3", *FILES, *words])


def test_pairs_do_not_mix() -> None:
    words = ["loss.kind=orpo", "data.pipeline=chat", "train.logical_shards=1"]
    with pytest.raises(UserError, match="expected one source for loss"):
        mixed(*words)


@pytest.mark.parametrize("name", ["train_data_weights", "dataset_mixer", "probabilities", "data_blend"])
def test_names_of_other_programs_are_answered_with_the_line_to_type(name: str) -> None:
    with pytest.raises(
        UserError, match=r"did you mean 'data.mix'\?; type data.mix=web:0.7,code:0.3 data.sources"
    ):
        load_config("tiny.py", [f"{name}=x"])
    with pytest.raises(UserError, match="=first for first_exhausted"):
        load_config("tiny.py", ["stopping_strategy=first_exhausted"])
