"""The classes of MUDDFormer's program, and classes in the user's own exp.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config.fields import walk
from mudd_core.programs import detect
from mudd_core.programs.maxtext.keys_classes import CLASSES
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved
from mudd_core.run.store.config_source import changed_file, recorded

RUN = ("run_name=r", "dataset_path=d", "dataset_type=pile")
# The contents of the program's own file: class, then key and value.
OF_THE_FILE = {
    "LlamaMedium": {
        "max_target_length": 2049,
        "rope_max_timescale": 10_000,
        "log_period": 25,
        "learning_rate_schedule_steps": 13_500,
        "warmup_steps_fraction": 0.01,
    },
    "Llama7B": {"max_target_length": 2049, "rope_max_timescale": 10_000, "log_period": 25},
    "Llama2Medium": {"max_target_length": 2049, "keep_period": 1000, "checkpoint_period": 500},
    "Llama": {"max_target_length": 2049, "vocab_size": 32_000},
}
EXP = """
class Small(MUDDLlama2Medium):
    base_num_decoder_layers = 4
    dynamic_dense_hidden_expand = [1] * (base_num_decoder_layers - 1) + [4]
    base_mlp_dim = 384
    learning_rate = 1e-3
    model_name = "Small"

class Smaller(Small):
    per_device_batch_size = 4
"""


def resolved(*words: str, file: str = "base_v2.yml") -> Resolved:
    found = detect.resolve(CommandLine(config=file, words=(*RUN, *words)))
    assert found is not None
    return found


def refusal(*words: str) -> str:
    with pytest.raises(UserError) as error:
        resolved(*words)
    return str(error.value)


@pytest.mark.parametrize("name", sorted(OF_THE_FILE))
def test_a_class_has_the_values_of_the_programs_file(name: str) -> None:
    assert {key: CLASSES[name][key] for key in OF_THE_FILE[name]} == OF_THE_FILE[name]


def test_the_schedules_of_the_classes() -> None:
    medium, large = (resolved(f"model_name={name}").config for name in ("LlamaMedium", "Llama7B"))
    assert (medium.optim.schedule_steps, medium.optim.warmup_steps) == (13_500, 135)
    assert (large.optim.schedule_steps, large.optim.warmup_steps) == (440_000, 2200)
    assert medium.train.seq_len == large.train.seq_len == 2048 and medium.train.keep_every == 1000


def test_a_class_of_ones_own_goes_over_a_named_base_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "expected one of LlamaMedium" in refusal("model_name=Smaller")
    (tmp_path / "exp.py").write_text(EXP)
    with recorded(()) as source:
        found = resolved("model_name=Smaller", "base_mlp_dim=512")
    base = resolved("model_name=MUDDLlama2Medium")
    config = found.config
    assert (config.model.n_layer, config.train.batch_size, config.optim.lr) == (4, 4, 1e-3)
    assert config.optim.schedule_steps == base.config.optim.schedule_steps == 13_500
    # A typed key has priority over the class.
    assert {info.path: info.value for info in walk(config)}["model.d_ff"] == 512
    assert found.origins["optim.lr"].file == "class Smaller of exp.py"
    assert str(tmp_path / "exp.py") in source.files
    (tmp_path / "exp.py").write_text(EXP.replace("1e-3", "2e-3"))
    with recorded(()) as later:
        resolved("model_name=Smaller")
    assert changed_file(source, later) == str(tmp_path / "exp.py")


def test_the_file_is_found_as_in_the_program_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "MaxText" / "configs"
    folder.mkdir(parents=True)
    (folder / "own.yml").write_text("base_config: muddformer/base_v2.yml\n")
    (tmp_path / "MaxText" / "exp.py").write_text(EXP)
    assert resolved("model_name=Small", file="MaxText/configs/own.yml").config.model.n_layer == 4
    (tmp_path / "other.py").write_text(EXP.replace("= 4\n", "= 6\n", 1))
    assert resolved("model_name=other.py:Small").config.model.n_layer == 6
    assert "other.py has no class 'Smal'; did you mean 'Small'" in refusal("model_name=other.py:Smal")


def test_a_class_of_the_users_file_replaces_the_programs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.py").write_text("raise RuntimeError('not run')\n")
    assert (
        resolved("model_name=Llama2Medium").config.optim.lr == 3e-4
    )  # the file has no such class, so it is not run
    (tmp_path / "exp.py").write_text(
        "class Llama2Medium(LlamaMedium):\n    vocab_size = 50432\n    learning_rate = 5e-4\n"
    )
    assert resolved("model_name=Llama2Medium").config.optim.lr == 5e-4


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("learning_rat = 1", "exp.py: Mine.learning_rat: no such key; did you mean 'learning_rate'"),
        ("vocab_size = 'big'", "Mine.vocab_size: expected a number, got 'big'"),
        ("def steps(self): pass", "Mine.steps: expected a number"),
        ("dense_conn = 1 / 0", "division by zero"),
        ("vocab_size = 1 +", "invalid syntax"),
        ("vocab_size = nothing_known", "nothing_known"),
    ],
)
def test_a_wrong_attribute_is_named(
    line: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exp.py").write_text(f"class Mine(LlamaMedium):\n    {line}\n")
    assert part in refusal("model_name=Mine")


def test_the_programs_own_command_is_taken_word_for_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["MaxText/train.py", "MaxText/configs/base_v2.yml", "run_name=r", "dataset_path=d"]
    assert main([*words, "model_name=MUDDLlama2Medium", "--explain=optim.lr"]) == 0
    shown = capsys.readouterr()
    assert "optim.lr = 0.0003" in shown.out
