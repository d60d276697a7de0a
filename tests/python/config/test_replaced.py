"""Config.replace, dicts as overrides, and the list of configs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.config import config_hash

TINY = mc.load_config("tiny.py")


def test_one_field_and_a_dict_of_fields_are_what_the_command_line_sets() -> None:
    want = mc.load_config("tiny.py", ["train.steps=20", "optim.lr=1e-3"])
    assert TINY.replace("train.steps", 20).replace("optim.lr", 1e-3) == want
    assert TINY.replace({"train.steps": 20, "optim.lr": 1e-3}) == want
    assert TINY.replace({"train": {"steps": 20}, "optim": {"lr": 1e-3}}) == want
    assert mc.load_config("tiny.py", {"train.steps": 20, "optim.lr": 1e-3}) == want
    assert config_hash(TINY) == config_hash(TINY.replace("train.log_every", 3)) != config_hash(want)


def test_a_section_and_a_model_of_another_family_are_replaced_whole(tmp_path: Path) -> None:
    gpt2 = mc.GPT2Config(n_layer=1)
    assert TINY.replace("model", gpt2).model == gpt2
    assert TINY.replace({"model": {"family": "gpt2", "n_layer": 1}}).model == gpt2
    assert TINY.replace("train", TINY.train) == TINY
    assert TINY.replace({"data.path": tmp_path, "train.steps": np.int64(3)}).data.path == str(tmp_path)
    assert type(TINY.replace("train.steps", np.int64(3)).train.steps) is int


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"train.stpes": 3}, "[config] unknown field 'train.stpes'; did you mean 'train.steps'?"),
        ({"steps": 3}, "[config] unknown field 'steps'; did you mean 'train.steps'?"),
        ({"train": {"stpes": 3}}, "[config] unknown field 'train.stpes'; did you mean 'train.steps'?"),
        ({"train.steps": "20"}, "[config] train.steps: expected a whole number, got '20'"),
        ({"train.steps": None}, "[config] train.steps: expected a whole number, got None"),
        ({"train.steps": -1}, "[config] train.steps: expected at least 1, got -1"),
        ({"model": 3}, "[config] model: expected TransformerPPConfig or a dict of its fields, got 3"),
        (
            {"train": TINY.optim},
            "[config] train: expected TrainConfig or a dict of its fields, got OptimConfig(",
        ),
        ({"model": {"family": "bert"}}, "[config] model.family: expected one of"),
    ],
)
def test_a_wrong_change_is_one_line_that_names_it(changes: dict[str, object], says: str) -> None:
    for call in (TINY.replace, lambda wrong: mc.load_config("tiny.py", wrong)):
        with pytest.raises(ValueError) as caught:
            call(changes)  # type: ignore[arg-type]
        assert str(caught.value).startswith(says) and "\n" not in str(caught.value)


def test_a_field_without_a_value_says_what_to_type() -> None:
    with pytest.raises(ValueError, match=r'type config.replace\("train.steps", VALUE\)'):
        TINY.replace("train.steps")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="expected a dict of fields or a list of strings, got a str"):
        mc.load_config("tiny.py", "train.steps=20")


def test_mup_refuses_a_head_width_without_its_scale() -> None:
    config = mc.load_config("mup/tiny.py")
    with pytest.raises(ValueError, match=r"set model\.qk_scale"):
        config.replace("model.d_head", config.model.d_head // 2)  # type: ignore[attr-defined]


def test_every_config_is_listed_with_a_line_and_loads_by_its_name() -> None:
    found = mc.list_configs()
    assert {"tiny.py", "small.py", "gpt2/tiny.py", "mup/base.py"} <= set(found)
    assert all(found.values()), "a config file without a docstring"
    assert found["gpt2/tiny.py"] == "A GPT-2 that learns visibly within two minutes on two cores."
    assert mc.load_config("gpt2/tiny.py").model.family == "gpt2"
    assert "gpt2/tiny.py" in repr(found) and repr(found).count("\n") == len(found) - 1


def test_a_fresh_process_has_all_six_family_configs() -> None:
    code = (
        "import mudd_core as mc; print(sorted(c.__name__ for c in (mc.GPT2Config, mc.MUDDFormerConfig, "
        "mc.MixtralConfig, mc.MupConfig, mc.TokenFormerConfig, mc.TransformerPPConfig)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("Config") == 6
