"""jax-lm-training's options: the field for each, and the rejected ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow.parquet
import pytest

import documents
from mudd_core.base.errors import UserError
from mudd_core.cli import main as cli
from mudd_core.config import GPT2Config, read_config
from mudd_core.config.fields import walk
from mudd_core.config.schema import protocol_of
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.programs.detect import program_of, resolve
from mudd_core.programs.jax_lm.keys import PREPROCESS, PREPROCESS_GRAMMAR
from mudd_core.programs.program import CommandLine, program_named, program_of_grammar, rows_of
from mudd_core.programs.resolved import Resolved, origin_text
from mudd_core.programs.row import WORKDIR
from printed_hints import sample_command


def resolved(*words: str, **options: str) -> Resolved:
    found = resolve(
        CommandLine("jax_lm.train", "", words, {f"--{name}": value for name, value in options.items()}, {})
    )
    assert found is not None and found.grammar == "jax_lm"
    return found


def test_the_documents_commands_come_to_the_committed_configs() -> None:
    assert documents.outcomes("jax_lm") == documents.kept("jax_lm")


def test_the_flags_of_the_documents_preprocessing_are_known() -> None:
    command = documents.commands("jax_lm")[0]
    names = {word[2:].replace("-", "_") for word in command.words if word.startswith("--")}
    assert names == {row.name for row in PREPROCESS} == set(rows_of(PREPROCESS_GRAMMAR))


def test_the_defaults_are_the_originals() -> None:
    found = resolved()
    config = found.config
    assert isinstance(config.model, GPT2Config) and config.model.n_layer == 6  # distilgpt2
    assert (config.train.batch_size, config.train.seq_len, config.train.epochs) == (16, 256, 5)
    assert (config.optim.lr, config.optim.beta2, config.optim.weight_decay) == (3e-5, 0.98, 0.01)
    assert (config.optim.schedule, config.optim.final_lr_ratio, config.optim.clip) == ("linear", 0.0, 0.0)
    assert (config.train.log_every, config.train.eval_every, config.train.save_every) == (100, 5000, 5000)
    assert (config.data.path, config.data.pipeline) == ("dataset/wikitext.train**", "features")
    assert (config.data.eval_path, config.loss.normalize) == ("dataset/wikitext.test**", "all_slots")
    assert protocol_of(config) == "features"
    assert config.log.wandb == "off" and found.workdir == "artifacts/" and found.style == "jax_lm"
    assert resolved(workdir="runs/x").workdir == "runs/x"


OTHER = {
    "train_dataset_paths": "a/train*",
    "eval_dataset_paths": "a/test*",
    "batch_size": "4",
    "random_seed": "3",
    "max_sequence_length": "128",
    "num_epochs": "2",
    "learning_rate": "1e-4",
    "weight_decay_rate": "0.1",
    "adamw_beta1": "0.8",
    "adamw_beta2": "0.9",
    "adamw_eps": "1e-6",
    "dtype": "bfloat16",
    "wandb_username": "me",
    "wandb_project": "mine",
    "logging_frequency": "7",
    "eval_frequency": "7",
    "save_frequency": "7",
    "restore_checkpoint_path": "runs/a/checkpoints/step-5",
}


@pytest.mark.parametrize("dashes", [True, False])
@pytest.mark.parametrize("name", OTHER)
def test_each_mapped_flag_changes_its_fields(name: str, dashes: bool) -> None:
    flag = f"--{name.replace('_', '-') if dashes else name}"
    before, after = resolved(), resolved(flag, OTHER[name])
    old = {info.path: info.value for info in walk(before.config)}
    changed = {info.path for info in walk(after.config) if info.value != old[info.path]}
    assert changed & set(rows_of("jax_lm")[name].fields), changed
    assert all(after.origins[path].word == f"{flag} {OTHER[name]}" for path in changed - {"log.wandb_dir"})


def test_all_rows_are_tested() -> None:
    others = {"model_config_name", "wandb_run_dir", "model_save_dir"}
    assert {row.name for row in rows_of("jax_lm").values()} == {*OTHER, *others}
    assert resolved("--wandb_project", "p", "--wandb-run-dir", "d").config.log.wandb_dir == "d"
    assert resolved("--wandb-run-dir", "d").config.log.wandb_dir == ""  # the tracker is disabled
    assert rows_of("jax_lm")["model_save_dir"].fields == (WORKDIR,)
    assert resolved("--model-save-dir", "out").workdir == "out"


def test_the_documents_commands_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = random.Random(4)
    lines = [" ".join(rng.choice(("un", "deux", "trois", "quatre")) for _ in range(40)) for _ in range(40)]
    Path("wikitext").mkdir()
    for split, part in (("train", lines), ("test", lines[:12])):
        Path(f"wikitext/wiki.{split}.txt").write_text("\n".join(part) + "\n")
    for name in ("gpt2", "model"):
        Path(name).mkdir()
    Path("gpt2/tokenizer.json").write_bytes(train_bpe(["\n".join(lines).encode()], 1, 280))
    settings = {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 16,
        "n_head": 2,
        "n_positions": 32,
        "vocab_size": 280,
    }
    Path("model/config.json").write_text(json.dumps(settings))
    preprocess, train = (list(command.words) for command in documents.commands("jax_lm"))
    small = {"128": "16", "256": "32"}
    preprocess = [small.get(word, word) for word in preprocess]
    preprocess[preprocess.index("--direct_num_workers") + 1] = "1"
    assert cli(["preprocess", *preprocess]) == 0
    test = ["--dataset-split-type", "test", "--output-path", "dataset/wikitext.test"]
    assert cli(["preprocess", *preprocess, *test]) == 0
    wandb = [i for i, word in enumerate(train) if word.startswith("--wandb")]
    train = [word for i, word in enumerate(train) if i not in wandb and i - 1 not in wandb]
    tiny = {"gpt2": "model", "256": "32", "16": "8", "100": "5", "5000": "7"}
    train = [tiny.get(word, word) for word in train]
    assert cli(["jax_lm.train", *train, "train.threads=1", "data.cache_dir=cache"]) == 0, (
        capsys.readouterr().err
    )
    output = capsys.readouterr().out
    told = output.splitlines()
    evals = [line for line in told if line.startswith("[EVAL] ")]
    trains = [line for line in told if line.startswith("[TRAIN] ")]
    steps = int(evals[0].split()[4].split("/")[1])
    # Steps start from 0 there: a period ends after step 7, which is update 8, and an epoch after its last step.
    ends = sorted({*range(7, steps, 7), *range(steps // 5 - 1, steps, steps // 5)})
    assert [int(line.split()[4].split("/")[0]) for line in evals] == ends and steps % 5 == 0
    assert [told[told.index(line) + 1] for line in evals] == ["save checkpoint to artifacts/"] * len(ends)
    assert {path.name for path in Path("artifacts/checkpoints").iterdir()} >= {
        f"step-{ends[-2] + 1}",
        f"step-{steps}",
    }
    assert [int(line.split()[4].split("/")[0]) for line in trains] == list(range(5, steps, 5))
    assert told[told.index(evals[-1]) + 1] == "save checkpoint to artifacts/"
    rows = sum(
        pyarrow.parquet.read_metadata(path).num_rows for path in Path("dataset").glob("wikitext.train*")
    )
    assert steps == 5 * (rows // 8)
    assert float(evals[-1].split()[6]) < float(evals[0].split()[6])
    assert sample_command(output) is None  # the records are ids
    assert cli(["validate", "--model-config-name", "model"]) == 0
    assert f"step {steps}: validation loss" in capsys.readouterr().out


def test_a_checkpoint_of_the_runs_own_folder_needs_no_restore() -> None:
    found = resolved("--restore-checkpoint-path", "artifacts/checkpoint_5000")
    assert not found.config.start.load_parameters_path
    assert found.notes == [
        "the run in artifacts/ continues from its newest checkpoint without --restore-checkpoint-path"
    ]
    start = resolved("--restore-checkpoint-path", "runs/a").config.start
    assert start.load_parameters_path == "runs/a" and start.keep_optimizer and start.keep_step


def test_a_seed_says_that_weights_follow_it() -> None:
    assert resolved("--random-seed", "3").notes == [
        "random_seed=3 also seeds the weights, which the original always initializes with seed 0"
    ]
    assert resolved("--random-seed", "0").notes == []


def test_the_model_is_shipped_or_in_a_folder(tmp_path: Path) -> None:
    assert resolved("--model-config-name", "gpt2").config.model == read_config("gpt2/gpt2").model
    settings = {
        "model_type": "gpt2",
        "n_layer": 2,
        "n_embd": 32,
        "n_head": 2,
        "n_positions": 64,
        "vocab_size": 300,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    found = resolved("--model-config-name", str(tmp_path))
    assert isinstance(found.config.model, GPT2Config)
    assert (found.config.model.n_layer, found.config.model.vocab_size) == (2, 300)
    assert found.config.optim == read_config("gpt2/gpt2").optim
    with pytest.raises(
        UserError,
        match=r"expected gpt2, distilgpt2, gpt2-medium, .* or a folder with config\.json, got 'gpt3'",
    ):
        resolved("--model-config-name", "gpt3")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(UserError, match="expected a GPT-2, got family transformer_pp"):
        resolved("--model-config-name", str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json"):
        resolved("--model-config-name", str(tmp_path))


def test_its_flags_alone_put_a_command_into_the_grammar() -> None:
    assert program_of(CommandLine("train", "", ("--train-dataset-paths", "x"))) is program_named("jax_lm")
    assert program_of(CommandLine("", "", ("--model-config-name", "gpt2"))) is program_named("jax_lm")
    assert program_of(CommandLine("train", "gpt2/tiny.py", ("--learning-rate", "1e-3"))) is None
    for command in ("validate", "sample", "report", "data"):
        asked = CommandLine(command, "", ("--model-config-name", "gpt2"))
        found = resolve(asked)
        assert found is not None and (found.grammar, found.command) == ("jax_lm", command)
        assert found.workdir == "artifacts/" and found.files == ["gpt2/gpt2"]


BAD = {
    "--batchsize 3": "unknown name 'batchsize'; did you mean 'batch_size'",
    "--batch-size many": "batch_size: expected a whole number, got 'many'",
    "--batch-size 3 --batch_size 4": "batch_size is given twice: --batch-size 3 and --batch_size 4",
    "--dtype float16": "float16, which needs loss scaling; use bfloat16",
    "--dtype int8": "[jax_lm] dtype: expected float32 or bfloat16, got 'int8'",
    "--num-epochs": "--num-epochs: expected a value after it",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_flags_end_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["jax_lm.train", *words.split()]) == 2
    assert BAD[words] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "grammar"),
    [
        (("--learning-rate=1e-4", "--dtype=float32"), "jax_lm"),
        (("--learning-rate", "1e-4"), "jax_lm"),
        (("--learning-rate=1e-4", "train.steps=3"), ""),  # the config is missing
        (("--learning-rate=1e-4", "--heads=3"), ""),
        ((), ""),
    ],
)
def test_train_with_flags_that_are_also_ours(words: tuple[str, ...], grammar: str) -> None:
    assert program_of(CommandLine("train", "", words, {}, {})) is program_of_grammar(grammar)
    assert program_of(CommandLine("train", "tiny.py", words, {}, {})) is None
    assert program_of(CommandLine("", "", words, {}, {})) is None


def test_a_start_shows_typed_words_without_control_characters() -> None:
    found = resolve(
        CommandLine("train", "", ("--train-dataset-paths", "x\x1b[31m\u202e", "--learning-rate", "1e-3"))
    )
    assert found is not None
    text = origin_text(found)
    assert "\\x1b[31m\\u202e" in text and "\x1b" not in text and "\u202e" not in text
