"""The user's own families in one process: bits, executors, ranks as threads, decoding, and invalid families."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors
from mudd_core import nn
from mudd_core.base.errors import UserError
from mudd_core.config import Config, ModelConfig, from_dict, to_dict
from mudd_core.config.families import family_of, in_family, named_family
from own_cases import MUDD_EVERY, PARALLEL, STATE_SPACE, plus_file
from rank_runs import batch_of, config_in_shards, train

SIZES = {"vocab_size": 61, "max_seq_len": 16, "d_model": 32, "n_layer": 2, "n_head": 2}


def model_of(name: str, **fields: int) -> ModelConfig:
    return named_family(name).config(**{**SIZES, **fields})


def test_transformer_pp_in_a_file_has_the_bits_of_the_one_inside(tmp_path: Path) -> None:
    own = model_of(f"{plus_file(tmp_path)}:Plus", n_kv_head=1)
    inside = mc.TransformerPPConfig(**SIZES, n_kv_head=1)
    for precision in ("fp32", "bf16"):
        assert train(config_in_shards(own, precision=precision), 1) == train(
            config_in_shards(inside, precision=precision), 1
        )
    ids = np.arange(5) % 61
    written = [list(mc.Model(config, seed=1).generate(ids, max_tokens=8)) for config in (own, inside)]
    assert written[0] == written[1]


def test_a_mudd_variant_with_late_mixtures_declares_only_those() -> None:
    late = mc.Model(model_of(MUDD_EVERY, n_layer=4, every=1, first=3), seed=1)
    mixes = {name.split(".")[1] for name in late.state_dict() if ".mix." in name}
    assert mixes == {"2", "3"}


@pytest.mark.parametrize("name", [PARALLEL, STATE_SPACE, MUDD_EVERY])
def test_worlds_and_micro_batches_change_no_bit(name: str) -> None:
    want = train(config_in_shards(model_of(name)), 1)
    for world in (2, 4):
        assert train(config_in_shards(model_of(name)), world) == want, world
    assert train(config_in_shards(model_of(name), micro_batch_size=2), 1) == want


@pytest.mark.parametrize("name", [PARALLEL, STATE_SPACE, MUDD_EVERY])
def test_both_executors_give_the_same_bits(name: str) -> None:
    config = config_in_shards(model_of(name))
    model = mc.Model(config.model, seed=3)
    batch = batch_of(config, 0)
    in_both_executors(model, batch, shards=4)


@pytest.mark.parametrize("name", [PARALLEL, STATE_SPACE, MUDD_EVERY])
def test_decoding_takes_the_argmax_of_the_full_pass(name: str) -> None:
    model = mc.Model(model_of(name), seed=2)
    written = list(model.generate([3, 1, 4], max_tokens=13))
    ids = [3, 1, 4, *written]
    assert written == [int(model.logits(ids[:end])[-1].argmax()) for end in range(3, len(ids))]


def test_a_family_outside_is_an_object_of_the_same_registry() -> None:
    family = named_family(PARALLEL)
    assert type(family) is type(named_family("gpt2")) and family.config is type(model_of(PARALLEL))
    config = Config(model=model_of(PARALLEL, d_model=64))
    assert family_of(config.model) is family and config.model.family == PARALLEL
    assert from_dict(to_dict(config)) == config
    switched = in_family(mc.TransformerPPConfig(d_model=48, rope_base=500.0), family)
    assert (switched.d_model, switched.family) == (48, PARALLEL)
    assert Config(model={"family": PARALLEL, "d_model": 96}).model == family.config(d_model=96)


def test_a_file_that_is_edited_in_a_session_is_run_again(tmp_path: Path) -> None:
    file = plus_file(tmp_path)
    before = named_family(f"{file}:Plus")
    assert named_family(f"{file}:Plus") is before
    file.write_text(file.read_text() + "\nprint_me = 1\n")
    after = named_family(f"{file}:Plus")
    assert after is not before and family_of(before.config(**SIZES)) is before


def test_a_notebook_registers_a_class_of_its_own() -> None:
    @dataclass(frozen=True)
    class Small(mc.FamilyConfig):
        scale: float = 2.0

    def small(config: Small, batch: mc.Batch) -> mc.Hidden:
        return mc.Hidden(
            nn.embedding(batch.inputs, "embed", 61, 32, std=config.scale), nn.head(config, std=1.0)
        )

    assert mc.register_family(Small, small) is Small
    config = Small(**SIZES)
    assert config.family == "Small" and mc.Model(config).logits([1, 2]).shape == (2, 61)
    assert from_dict(to_dict(Config(model=config))).model == config
    other_session = to_dict(Config(model=config)) | {"model": {"family": "NotHere"}}
    with pytest.raises(UserError, match=re.escape("mc.register_family(NotHere, model)")):
        from_dict(other_session)


def test_what_cannot_be_a_family_is_named() -> None:
    @dataclass(frozen=True)
    class Right(mc.FamilyConfig):
        pass

    @dataclass
    class Mutable:
        pass

    class Bare(mc.FamilyConfig):
        pass

    @dataclass(frozen=True)
    class Listed(mc.FamilyConfig):
        sizes: list[int] = dataclasses.field(default_factory=list)

    def right(config: Right, batch: mc.Batch) -> mc.Hidden:
        raise NotImplementedError

    def wrong(config: Right) -> mc.Hidden:
        raise NotImplementedError

    for cls, function, said in [
        (Mutable, right, "expected a class derived from mc.FamilyConfig, got Mutable"),
        (Bare, right, "expected @dataclass(frozen=True) above class Bare"),
        (Listed, right, "Listed.sizes: expected int, float, bool or str, got list[int]"),
        (Right, wrong, "expected model(config, batch, cache=None), got wrong(config: 'Right')"),
        (Right, 3, "expected model(config, batch, cache=None), got int"),
    ]:
        with pytest.raises(TypeError, match=re.escape(said)):
            mc.register_family(cls, function)  # type: ignore[arg-type,type-var]


def test_a_wrong_argument_of_a_parameter_is_named() -> None:
    @dataclass(frozen=True)
    class Wrong(mc.FamilyConfig):
        missing: bool = False

    def wrong(config: Wrong, batch: mc.Batch) -> mc.Hidden:
        more = {} if config.missing else {"std": 0.02}
        nn.parameter("w", (8, 8), **{"role": "matrix", "fan_in": 8, "fan_out": 8, **more})  # type: ignore[misc]
        raise AssertionError

    mc.register_family(Wrong, wrong)
    for missing, said in ((False, "no argument std="), (True, "init=, which is missing")):
        with pytest.raises(
            TypeError, match=re.escape(f"[nn.parameter] w: expected {said}; type nn.parameter(")
        ):
            mc.Model(Wrong(**SIZES, missing=missing))


def test_a_saved_config_runs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text(f"open({str(tmp_path / 'was_here')!r}, 'w')\n")
    raw = to_dict(Config(model=model_of(PARALLEL, d_model=64)))
    raw["model"]["family"] = f"{file}:Evil"
    config = from_dict(raw)
    assert (config.model.d_model, config.model.family) == (64, f"{file}:Evil")
    assert to_dict(config)["model"] == raw["model"]
    with pytest.raises(UserError, match="a command runs only the files that its arguments name"):
        mc.Model(dataclasses.replace(config.model, vocab_size=61, max_seq_len=16))
    assert not (tmp_path / "was_here").exists()
