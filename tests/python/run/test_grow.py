"""Growing slots: unchanged outputs, trainable parameters, the command, the moments (docs/maths/tokenformer.md, 5)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import checkpoint, cli
from mudd_core.base.errors import UserError
from mudd_core.config import Config, DataConfig, OptimConfig, StartConfig, TokenFormerConfig, TrainConfig
from mudd_core.run.build import grow
from mudd_core.run.build.start_source import Source, step_folder
from mudd_core.tools.grow_command import PRESERVED
from small_models import make_batch

OLD = TokenFormerConfig(vocab_size=61, max_seq_len=24, d_model=32, n_layer=2, n_head=4, slot_num=12)
TOKENS = make_batch(61, 2, 24)["inputs"]


def old_model(**options: Any) -> mc.Model:
    return mc.Model(dataclasses.replace(OLD, **options), seed=3)


def source_of(model: mc.Model) -> Source:
    tensors = {name: np.array(value) for name, value in model.parameters.items()}
    return Source(Path("memory"), tensors, None, False)


def grown_model(old: mc.Model, how: str, slot_number: int = -1, slots: int = 45, **options: Any) -> mc.Model:
    new = mc.Model(dataclasses.replace(old.config, slot_num=slots, **options), seed=8)
    weights = grow.start_weights(new, source_of(old), slot_number=slot_number, how=how)
    for name, value in weights:
        new.set_parameter(name, value)
    return new


def change(old: mc.Model, new: mc.Model) -> float:
    """Return the largest change of a logit, relative to the largest logit."""
    most, largest = grow.largest_change(old, new, TOKENS)
    return most / largest


@pytest.mark.parametrize("how", ["zero_keys", "zero_both"])
@pytest.mark.parametrize(
    ("norm", "zoom", "preserved"),
    [
        ("l2_norm_gelu", 12, True),
        ("l2_norm_gelu", 0, False),  # tau grows with the slots and gelu is not linear
        ("gelu_l2_norm", 12, True),
        ("gelu_l2_norm", 0, False),
        ("l2_norm", 12, True),
        ("gelu", 0, True),  # has no tau
        ("softmax", 12, False),  # exp(0) = 1 for every new slot
        ("gelu_layer_norm", 12, False),
    ],
)
def test_when_zero_keys_preserve_the_function(norm: str, zoom: int, preserved: bool, how: str) -> None:
    old = old_model(normalize_type=norm)
    new = grown_model(old, how, zoom_dim=zoom)
    # The new slots output nothing, but get a part of the softmax.
    if how == "zero_both" and norm == "softmax":
        assert change(old, new) > 1e-3
    assert (change(old, new) < PRESERVED) is preserved


def test_from_576_to_2140_slots_as_the_seed_grows() -> None:
    old = old_model(d_model=16, n_layer=1, slot_num=576)
    new = grown_model(old, "zero_keys", slots=2140, zoom_dim=576)
    assert new.parameters["blocks.0.ffn.key"].shape == (8560, 16)
    assert change(old, new) < PRESERVED
    assert change(old, grown_model(old, "zero_keys", slots=2140)) > 1e-3
    random = grown_model(old, "random", slots=2140, slot_number=576)
    assert np.array_equal(
        random.parameters["blocks.0.ffn.value"][:2304], old.parameters["blocks.0.ffn.value"]
    )
    assert random.parameters["blocks.0.ffn.value"][2304:].any()


def test_biases_of_keys_and_a_zoom_held_before_are_preserved_too() -> None:
    old = old_model(qkv_bias=True, proj_bias=True, ffn_bias=True, zoom_dim=7)
    for name, value in old.parameters.items():
        if "bias" in name:
            old.set_parameter(name, np.full_like(value, 0.3))
    assert grow.preserving_zoom(old.config, dataclasses.replace(old.config, slot_num=45)) == 7
    new = grown_model(old, "zero_keys")
    assert change(old, new) < PRESERVED
    assert not new.parameters["blocks.0.attn.q.key_bias"][12:].any()


def test_random_slots_are_the_initial_ones_and_change_the_function() -> None:
    old = old_model()
    new, fresh = grown_model(old, "random"), mc.Model(dataclasses.replace(OLD, slot_num=45), seed=8)
    assert change(old, new) > 1e-2
    for name, rows in (("blocks.1.attn.k.key", 12), ("blocks.0.ffn.value", 48)):
        assert np.array_equal(new.parameters[name][:rows], old.parameters[name])
        assert np.array_equal(new.parameters[name][rows:], fresh.parameters[name][rows:])
    assert np.array_equal(new.parameters["embed"], old.parameters["embed"])


def test_which_new_slots_can_learn() -> None:
    batch = make_batch(61, 4, 24)
    gradients = {}
    for how in ("zero_keys", "zero_both"):
        new = grown_model(old_model(), how, zoom_dim=12)
        gradients[how] = new.loss_and_gradients(batch)[1]
    for part, rows in (("attn.v", 12), ("attn.o", 12), ("ffn", 48)):
        key, value = f"blocks.0.{part}.key", f"blocks.0.{part}.value"
        assert np.abs(gradients["zero_keys"][key][rows:]).max() > 0
        assert not gradients["zero_keys"][value][rows:].any()  # until the keys have changed
        assert not gradients["zero_both"][key][rows:].any()
        assert not gradients["zero_both"][value][rows:].any()


def test_the_slot_number_cuts_what_is_loaded() -> None:
    old = old_model()
    new = grown_model(old, "zero_keys", slot_number=5)
    assert np.array_equal(
        new.parameters["blocks.0.attn.o.value"][:5], old.parameters["blocks.0.attn.o.value"][:5]
    )
    assert not new.parameters["blocks.0.ffn.key"][20:].any()
    with pytest.raises(UserError, match=r"expected at most 12, because .* has \d+ stored slots, got 13"):
        grown_model(old, "random", slot_number=13)


def test_what_does_not_fit_is_named() -> None:
    small = mc.Model(dataclasses.replace(OLD, slot_num=8))
    with pytest.raises(UserError, match=r"blocks.0.attn.q.key: expected at most 8 slots"):
        dict(grow.start_weights(small, source_of(old_model())))
    wide = mc.Model(dataclasses.replace(OLD, d_model=40))
    with pytest.raises(UserError, match="embed: expected shape"):
        dict(grow.start_weights(wide, source_of(old_model())))
    deep = mc.Model(dataclasses.replace(OLD, n_layer=3))
    with pytest.raises(UserError, match=r"'blocks.2.*is missing"):
        dict(grow.start_weights(deep, source_of(old_model())))
    flat = mc.Model(dataclasses.replace(OLD, n_layer=1))
    with pytest.raises(UserError, match=r"'blocks.1.*has no place"):
        dict(grow.start_weights(flat, source_of(old_model())))


# ---------------------------------------------------------------- runs and the command


def config(text: Path, **start: Any) -> Config:
    return Config(
        name="grow",
        model=TokenFormerConfig(d_model=32, n_layer=1, n_head=2, slot_num=8),
        data=DataConfig(path=str(text), cache_dir=str(text.parent / "cache"), tokenizer="bytes"),
        train=TrainConfig(steps=6, batch_size=4, seq_len=32, threads=1, log_every=1),
        optim=OptimConfig(lr=3e-3, decay="all"),
        start=StartConfig(**start),
    )


@pytest.fixture(scope="module")
def trained(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the work directory of a small run."""
    path = tmp_path_factory.mktemp("grow") / "small"
    with mc.Trainer(config(tiny_text), path) as trainer:
        trainer.fit()
    return path


def words(tiny_text: Path, trained: Path, out: Path, *more: str) -> list[str]:
    file = out.with_name("larger.json")
    file.write_text(json.dumps(dataclasses.asdict(config(tiny_text)) | {"name": "larger"}))
    return ["grow", f"--config={file}", f"--from={trained}", f"--workdir={out}", "model.slot_num=20", *more]


def test_the_command_preserves_and_the_run_goes_on(
    tiny_text: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert cli.main(words(tiny_text, trained, out, "--preserve")) == 0
    printed = capsys.readouterr().out
    assert "8 to 20 slots" in printed
    assert float(printed.split(" of the largest logit")[0].split()[-1]) < PRESERVED
    saved = mc.load_config(out / "config.json")
    assert isinstance(saved.model, TokenFormerConfig) and saved.model.zoom_dim == 8
    with mc.Trainer(saved, out) as trainer:
        assert trainer.step_done == 0
        old = checkpoint.load_newest(trained / "checkpoints")
        assert old is not None
        key = trainer.model.parameters["blocks.0.ffn.key"]
        assert np.array_equal(key[:32], old.tensors["blocks.0.ffn.key"]) and not key[32:].any()
        assert trainer.engine.updates == 0
        trainer.fit()
    assert cli.main(words(tiny_text, trained, out)) == 2  # never overwrites another run
    assert "already contains checkpoints" in capsys.readouterr().err


def test_the_command_prints_the_change_of_random_slots(
    tiny_text: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words(tiny_text, trained / "checkpoints" / "step-6", tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert float(printed.split(" of the largest logit")[0].split()[-1]) > 1e-3
    run = mc.load_config(tmp_path / "out" / "config.json")
    assert run.start.grow_init == "random"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--grow-init=zero_both"], "can never learn"),
        (["--preserve", "--grow-init=random"], "expected --grow-init=zero_keys with it"),
        (["--preserve", "model.normalize_type=softmax"], "impossible with normalize_type=softmax"),
        (["--slot-number=9"], "expected at most 8, because "),
        (["model.slot_num=4"], "expected at most 4 slots"),
    ],
)
def test_the_command_refuses(
    more: list[str],
    message: str,
    tiny_text: Path,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(words(tiny_text, trained, tmp_path / "out", *more)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_zero_both_goes_with_force(tiny_text: Path, trained: Path, tmp_path: Path) -> None:
    assert cli.main(words(tiny_text, trained, tmp_path / "out", "--grow-init=zero_both", "--force")) == 0


def test_a_run_can_take_over_the_optimizer(tiny_text: Path, trained: Path) -> None:
    old = checkpoint.load_newest(trained / "checkpoints")
    assert old is not None
    larger = config(tiny_text, load_parameters_path=str(trained), keep_optimizer=True)
    larger = dataclasses.replace(larger, model=dataclasses.replace(larger.model, slot_num=20))
    with mc.Trainer(larger) as trainer:
        state = trainer.engine.state_tensors()
        assert trainer.engine.updates == 6
        for plane in ("first_moment", "second_moment"):
            name = f"{plane}/blocks.0.attn.q.value"
            assert np.array_equal(state[name][:8], old.tensors[name]) and not state[name][8:].any()
        assert trainer.step().loss < 6
    with mc.Trainer(
        dataclasses.replace(larger, start=StartConfig(load_parameters_path=str(trained)))
    ) as trainer:
        assert trainer.engine.updates == 0
        assert not trainer.engine.state_tensors()["first_moment/embed"].any()


def test_a_run_with_a_checkpoint_does_not_look_at_the_path(
    tiny_text: Path, trained: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "moved"
    moved.symlink_to(trained)
    begun = config(tiny_text, load_parameters_path=str(moved))
    with mc.Trainer(begun, tmp_path / "run") as trainer:
        trainer.step()
        trainer.save()
        want = trainer.final_hash()
    moved.unlink()
    with mc.Trainer(begun, tmp_path / "run") as trainer:
        assert (trainer.step_done, trainer.final_hash()) == (1, want)
    with pytest.raises(UserError, match="does not exist"):
        mc.Trainer(begun, tmp_path / "another")


@pytest.mark.parametrize(
    "theirs", ["checkpoints/7/items", "checkpoints/7", "checkpoint_7", "checkpoints/checkpoint_7"]
)
def test_a_step_may_be_named_as_in_the_original_programs(theirs: str, tmp_path: Path) -> None:
    ours = tmp_path / "checkpoints" / "step-7"
    assert step_folder(tmp_path / theirs) == tmp_path / theirs
    ours.mkdir(parents=True)
    assert step_folder(tmp_path / theirs) == ours
    assert step_folder(tmp_path / "checkpoints" / "8") == tmp_path / "checkpoints" / "8"
