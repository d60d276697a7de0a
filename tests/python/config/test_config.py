"""Configs: checks, JSON, hash, and fields that may change on resume."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import (
    Config,
    GPT2Config,
    OptimConfig,
    TrainConfig,
    TransformerPPConfig,
    check_config,
    config_hash,
    from_dict,
    merge_for_resume,
    shard_count,
    to_dict,
)
from mudd_core.config.describe import field_help, listing
from mudd_core.config.fields import replace_path, walk
from mudd_core.config.saved import Difference, OtherConfigError
from mudd_core.engine.batch_part import cut_batch
from places import ROOT


def test_all_broken_rules_come_at_once() -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", ["train.steps=0", "optim.clip=-1"])
    assert "train.steps" in str(caught.value) and "optim.clip" in str(caught.value)


def test_types_set_in_python_are_checked_too() -> None:
    for wrong in (TrainConfig(steps=2.5), TrainConfig(steps=True), TrainConfig(debug_nonfinite=1)):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="expected"):
            check_config(Config(train=wrong))
    check_config(Config(optim=OptimConfig(lr=1)))  # an integer is a valid float


def test_two_names_of_a_precision_are_one() -> None:
    one, other = (mc.load_config("tiny.py", ["--dtype", name]) for name in ("bf16", "bfloat16"))
    assert one == other and other.train.precision == "bf16"
    assert mc.load_config("tiny.py", ["--dtype", "float32"]) == mc.load_config("tiny.py")


def test_resume_takes_free_fields_and_lists_the_others() -> None:
    saved = mc.load_config("tiny.py")
    asked = mc.load_config("tiny.py", ["train.log_every=3", "train.threads=2", "train.stop_at=5"])
    merged, changed = merge_for_resume(saved, asked)
    assert merged == asked and config_hash(merged) == config_hash(saved)
    assert [change.path for change in changed] == ["train.log_every", "train.stop_at", "train.threads"]
    other = mc.load_config("tiny.py", ["train.steps=400", "optim.lr=1", "train.log_every=3"])
    assert config_hash(other) != config_hash(saved)
    with pytest.raises(UserError) as caught:
        merge_for_resume(saved, other)
    assert f"train.steps: saved {saved.train.steps}, asked 400" in str(caught.value)
    assert "optim.lr" in str(caught.value) and "log_every" not in str(caught.value)


def test_a_resume_with_another_family_lists_only_fields_that_both_have() -> None:
    saved, asked = mc.load_config("transformer_pp/small.py"), mc.load_config("small.py")
    with pytest.raises(UserError, match=r"model\.family") as caught:
        merge_for_resume(saved, asked)
    lines = str(caught.value).splitlines()
    assert "  optim.beta2: saved 0.95, asked 0.99" in lines and "None" not in str(caught.value)
    own = {info.path for config in (saved, asked) for info in walk(config)}
    both = {info.path for info in walk(saved)} & {info.path for info in walk(asked)}
    assert f"  and {len(own - both)} fields that only one of these families has" in lines
    one = [Difference("model.family", "gpt2", "own", False), Difference("model.extra", None, 1, False)]
    assert OtherConfigError(one).fields.splitlines()[1:] == [
        "  and 1 field that only one of these families has"
    ]


@pytest.mark.parametrize("model", [TransformerPPConfig(), GPT2Config()])
def test_hash_sees_exactly_the_fields_that_shape_training(model: TransformerPPConfig | GPT2Config) -> None:
    config = Config(model=model)
    for info in walk(config):
        new = f"{info.value}x" if isinstance(info.value, str) else info.value + 1
        changed = replace_path(config, info.path, not info.value if info.kind is bool else new)
        assert (config_hash(changed) == config_hash(config)) == info.free_on_resume, info.path


def test_every_field_is_explained() -> None:
    for model in (TransformerPPConfig(), GPT2Config()):
        config = Config(model=model)
        text, table = field_help(config), listing(config)
        for info in walk(config):
            assert len(info.text) > 8, info.path
            assert f"{info.path} = " in text and info.text.split()[0] in text
            assert info.path.rpartition(".")[2] + "=" in table
            numeric = info.kind in (int, float)
            assert not numeric or info.low is not None, f"{info.path} has no lower bound"
            assert info.kind is not int or info.unit or "seed" in info.path, f"{info.path} has no unit"


def test_shards_are_capped_by_the_batch() -> None:
    def shards(batch: int, asked: int = 8) -> int:
        return shard_count(Config(train=TrainConfig(batch_size=batch, logical_shards=asked)))

    assert [shards(batch) for batch in (1, 2, 3, 4, 8, 64)] == [1, 2, 2, 4, 8, 8]
    assert shards(64, 2) == 2


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*to_dict(Config()), "family"]), inner)
    ),
    max_leaves=8,
)


@given(json_like)
def test_any_json_gives_a_checked_config_or_a_usage_error(raw: object) -> None:
    with contextlib.suppress(UserError):
        check_config(from_dict(raw))


def test_config_needs_no_numpy() -> None:
    code = "import mudd_core as mc, sys; mc.load_config('tiny.py'); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_the_micro_batch_of_earlier_versions_counts_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert TrainConfig(batch_size=64, logical_shards=16, micro_batch=2).micro_batch_size == 8
    assert (
        TrainConfig(batch_size=64, logical_shards=16, micro_batch=16).micro_batch_size == 0
    )  # the whole batch
    config = mc.load_config("tiny.py", ["train.micro_batch=2", "train.batch_size=32"])  # in any order
    assert config.train.micro_batch_size == 8
    assert "train.micro_batch_size=8 counts sequences" in capsys.readouterr().out
    saved = to_dict(config)
    del saved["train"]["micro_batch_size"]
    assert from_dict({**saved, "train": {**saved["train"], "micro_batch": 2}}) == config


@pytest.mark.parametrize(
    ("batch", "shards", "size", "runs"),
    [
        (8, 8, 0, 1),
        (8, 8, 8, 1),
        (8, 8, 99, 1),
        (8, 8, 1, 8),
        (8, 8, 3, 4),
        (32, 8, 1, 8),
        (32, 8, 8, 4),
        (5, 8, 5, 1),
    ],
)
def test_runs_of_a_micro_batch_size(batch: int, shards: int, size: int, runs: int) -> None:
    assert cut_batch(batch, shards, size)[0] == runs


def test_sections_may_be_dicts_whose_names_are_checked() -> None:
    config = Config(train={"steps": 3}, model={"family": "gpt2", "d_model": 64})  # type: ignore[arg-type]
    assert config.train == TrainConfig(steps=3) and config.model == GPT2Config(d_model=64)
    assert Config(model={"d_model": 64}).model == TransformerPPConfig(d_model=64)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"unknown field 'train\.stepz'; did you mean 'steps'"):
        Config(train={"stepz": 3})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"train: expected TrainConfig or a dict of its fields, got int"):
        Config(train=3)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"model\.family: expected one of .*, got 'gpt3'"):
        Config(model={"family": "gpt3"})  # type: ignore[arg-type]
