"""The command tune with names of other programs and with wrong fields, typed in a fresh process."""

from __future__ import annotations

from pathlib import Path

import pytest

from launched import arguments_of, called, launched

GIVEN = "--base=base --data=chat.jsonl --workdir=runs/x"
# The arguments of tune, and the arguments that the answer proposes.
PROPOSED = {
    "--model=base --dataset=chat.jsonl --lora-rank=4 --epochs=3 --lr=1e-4 --output_dir runs/x": (
        f"{GIVEN} lora.rank=4 --epochs=3 --lr=1e-4"
    ),
    "--model_name_or_path base --dataset_name chat.jsonl --num_train_epochs 2 --plan": (
        "--base=base --data=chat.jsonl --workdir=runs/mine --plan train.epochs=2"
    ),
    f"{GIVEN} lora_r=8 lora_alpha=16 target_modules=[q_proj,v_proj] use_peft=true": (
        f"{GIVEN} lora.rank=8 lora.alpha=16 lora.targets=q,v tune.method=lora"
    ),
    f"{GIVEN} --per_device_train_batch_size=4 --packing --peft_type=LORA --target_modules=all-linear": (
        f"{GIVEN} train.batch_size=4 tune.method=lora lora.targets=all"
    ),
    "base chat.jsonl --output_dir=runs/x": GIVEN,
    "--base_model=base": "--base=base --data=chat.jsonl --workdir=runs/mine",
    "--init_from=base data.path=chat.jsonl --workdir runs/x": GIVEN,
    "--workdir=runs/x": "--workdir=runs/x --base=FOLDER --data=chat.jsonl",
}
# Mistakes, and a part of the answer to each.
REFUSED = {
    f"{GIVEN} lora.rnk=4": "unknown field 'lora.rnk' in 'lora.rnk=4'; did you mean 'lora.rank'?",
    f"{GIVEN} train.stepz=3": "did you mean 'train.steps'?",
    f"{GIVEN} --no-such-option=3": "unknown option '--no-such-option'",
    f"{GIVEN} optim.lr=x": "optim.lr: expected a number, got 'x'",
    f"{GIVEN} lora.rank=0": "lora.rank: expected at least 1, got 0",
    f"{GIVEN} lora_r=0": "lora.rank: expected at least 1, got 0",
    f"{GIVEN} lora.targets=x": "expected all or linear layers of the model, got 'x'",
    f"{GIVEN} tune.method=qlora": "expected lora, full or last:N",
    f"{GIVEN} tune.method=last:9": "expected at most last:2 (model.n_layer)",
    f"{GIVEN} --finetuning_type=freeze": "is tune.method here: expected lora, full or last:N, got 'freeze'",
    f"{GIVEN} model.n_layer=7": "the base decides the model",
    f"{GIVEN} --hidden_size=7": "the base decides the model",
    f"{GIVEN} data.mix=a:1 data.sources.a.path=chat.jsonl": "[tune] data.mix: tune reads the conversations of --data",
    f"{GIVEN} data.pipeline=text": "tune reads the conversations of --data alone; leave data.pipeline out",
    "--base=base --data=none.jsonl --workdir=runs/x": "--data: expected a file, a folder or a pattern",
    "--base=base --data=base --workdir=runs/x": "reads jsonl, Parquet and Arrow, got ",
    "base none.jsonl": "expected options, name=value, or an existing folder and file, got 'none.jsonl'",
    f"{GIVEN} 8": "an existing folder and file, got '8'",
    "--model=base --data=none.jsonl --foo=1": "unknown option '--foo'",
}  # fmt: skip


@pytest.mark.parametrize("typed", PROPOSED)
def test_names_of_other_programs_are_answered_with_the_line_to_type(typed: str, here: Path) -> None:
    done = called(here, "tune", *typed.split())
    assert done.returncode == 2 and done.stdout == "", done
    proposed = arguments_of(done.stderr.partition("; type: ")[2])
    assert proposed == ["tune", *PROPOSED[typed].split()], done.stderr
    assert {file.name for file in here.iterdir()} == {"base", "chat.jsonl"}


@pytest.mark.parametrize("typed", REFUSED)
def test_a_mistake_is_found_before_the_base_is_imported(typed: str, here: Path) -> None:
    done = called(here, "tune", *typed.split())
    assert done.returncode == 2 and done.stdout == "" and REFUSED[typed] in done.stderr, done
    assert {file.name for file in here.iterdir()} == {"base", "chat.jsonl"}


@pytest.mark.parametrize("name", ["sft", "finetune", "scripts/finetune.py"])
def test_commands_and_scripts_that_tune_replaces_are_answered_at_once(name: str, here: Path) -> None:
    done = called(here, name, "--model_name_or_path=base", "--dataset_name=chat.jsonl", "--output_dir=runs/x")
    assert done.returncode == 2 and f"'{name}' is the command tune here" in done.stderr, done
    assert arguments_of(done.stderr.partition("; type: ")[2]) == ["tune", *GIVEN.split()]
    wrong = called(here, name, "--model=base", "lora.rnk=3")
    assert wrong.returncode == 2 and "did you mean 'lora.rank'?" in wrong.stderr, wrong


def test_adapters_are_no_base(here: Path) -> None:
    (here / "peft").mkdir()
    (here / "peft" / "adapter_config.json").write_text('{"r": 2, "base_model_name_or_path": "base"}')
    done = launched(here, "tune", "--base=peft", "--data=chat.jsonl", "--workdir=runs/x")
    assert done.returncode == 2 and "--base: expected a model, got 'peft', adapters of PEFT" in done.stderr
    assert "tune --base=base --data=FILE --adapter=peft --workdir=runs/peft;" in done.stderr
    assert not (here / "runs").exists()


def test_the_proposed_line_trains(here: Path) -> None:
    typed = [
        "--model=base",
        "--dataset=chat.jsonl",
        "lora_r=8",
        "--epochs=1",
        "--lr=1e-4",
        "--max_seq_length=64",
    ]
    refused = launched(here, "tune", *typed, "--output_dir", "runs/x")
    assert refused.returncode == 2 and "'lora_r' is lora.rank here" in refused.stderr, refused
    assert {file.name for file in here.iterdir()} == {"base", "chat.jsonl"}
    done = launched(here, *arguments_of(refused.stderr.partition("; type: ")[2]))
    assert done.returncode == 0 and "held-out loss: " in done.stdout, done
    for chosen in ("optim.lr=0.0001 ", "train.seq_len=64 "):
        assert chosen in done.stdout, done.stdout
    assert '"rank": 8' in (here / "runs" / "x" / "config.json").read_text()
