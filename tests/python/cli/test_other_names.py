"""Names and values of other programs: the answer names the mudd_core equivalent, or says that there is none."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from launched import called
from mudd_core import cli
from mudd_core.cli.foreign_values import RELATIVE
from mudd_core.cli.names import OPTIONS
from mudd_core.config.foreign import NOTES, SETTINGS
from mudd_core.config.schema import fields_of_all

# The arguments after --config=tiny.py, and their replacement in the proposed command.
PROPOSED = {
    "--resume_from_checkpoint=True": "",
    "--resume_from_checkpoint=out": "--workdir=out",
    "--remat_policy=full": "train.recompute=true",
    "--gradient_checkpointing=False": "train.recompute=false",
    "--nproc_per_node=1": "",
    "--init_from=resume": "",
    "--init_from=notes.txt": "start.load_parameters_path=notes.txt",
    "--run_name=out": "--workdir=runs/out",
    "--validation_file=notes.txt": "data.eval_path=notes.txt",
    "--report_to=none": "log.wandb=off",
    "--report_to=tensorboard": "log.wandb=off",
    "--report_to=all": "log.wandb=online",
    "--wandb_log=False": "log.wandb=off",
    "--wandb=0": "log.wandb=off",
    "--fp16=False": "train.precision=fp32",
    "--amp=O1": "train.precision=bf16",
    "--precision=16-mixed": "train.precision=bf16",
    "--precision=32-true": "train.precision=fp32",
    "--torch_dtype=float32": "train.precision=fp32",
    "--warmup_ratio=0": "optim.warmup_steps=0",
    "--max_iters=10 --warmup_ratio=0.5": "train.steps=10 optim.warmup_steps=5",
    "--warmup_ratio=0.5 --max_iters=10": "train.steps=10 optim.warmup_steps=5",
    "--min_lr=1e-4 --max_lr=1e-3": "optim.lr=1e-3 optim.final_lr_ratio=0.1",
    "--gradient_accumulation_steps=1": "",
    "train.batch_size=2 --grad_accum_steps=4": "train.batch_size=8 train.micro_batch_size=2",
    "--decay_lr=True": "optim.schedule=cosine",
    "--lr_scheduler_type=linear_decay": "optim.schedule=linear",
    "--lr_scheduler_type=constant_with_warmup": "optim.schedule=constant",
    "--optimizer=Adam": "optim.name=adamw",
    "--optimizer=adam_pax": "optim.name=adam_pax",
    "--optimizer=Lion": "optim.name=lion",
    "--seqlen 32 --device cuda": "train.seq_len=32",
    "--n-embd=64": "model.d_model=64",
    "-seqlen=32": "train.seq_len=32",
    "model.hidden-size=64": "model.d_model=64",
}

# Refused arguments, and a part of the message for each.
REFUSED = {
    "--nproc_per_node=0": "is --ranks here: got '0'",
    "--nproc_per_node=many": "is --ranks here: got 'many'",
    "--run_name=": "is --workdir here: got ''",
    "--report_to=mlflow": "expected one of off, offline, online, got 'mlflow'",
    "--validation_file=none.txt": "expected a text file or a folder of text files, got 'none.txt'",
    "--torch_dtype=int8": "expected one of fp32, bf16, got 'int8'",
    "--gradient_checkpointing=maybe": "is train.recompute here: got 'maybe'",
    "--warmup_ratio=1": "it is a number of steps, got '1'",
    "--warmup_ratio=-0.1": "it is a number of steps, got '-0.1'",
    "--epochs=2 --warmup_ratio=0.1": "it is a number of steps, got '0.1'",
    "--min_lr=1": "it is a fraction of optim.lr, got '1'",
    "--min_lr=-1": "it is a fraction of optim.lr, got '-1'",
    "--min_lr=low": "it is a fraction of optim.lr, got 'low'",
    "--grad_accum_steps=2.5": "expected passes that divide train.batch_size, got '2.5'",
    "--grad_accum_steps=0": "expected passes that divide train.batch_size, got '0'",
    "--max_iters=few": "is train.steps here: got 'few'",
    "--max_iters=": "is train.steps here: got ''",
    "--max_iters=few --block_size=none": "'--max_iters' is train.steps here: got 'few'",
    "--dropout=0.1": "'--dropout' is left out (only the gpt2 family has dropout)",
    "--no-such-name=64 --n_embd=64": "unknown option '--no-such-name'",
    "--n_embd=-3": "unknown option '--n_embd'; did you mean '--d-model'?",
    "notes.txt data.path=x": "'notes.txt' is neither a command nor name=value",
    "foo --nproc_per_node=0": "'foo' is neither a command nor name=value",
}


def told(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that answers a command in a folder with notes.txt."""
    monkeypatch.chdir(folder)
    Path("notes.txt").write_text("notes\n")
    assert cli.main(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1, (out, err)
    return err.rstrip("\n")


@pytest.mark.parametrize("typed", PROPOSED)
def test_a_value_becomes_its_counterpart(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(f"--config=tiny.py {typed}", tmp_path, monkeypatch, capsys)
    proposed = " ".join(filter(None, ("--config=tiny.py", PROPOSED[typed])))
    assert answer.partition("; type: ")[2].partition("launch.py ")[2] == proposed, answer


@pytest.mark.parametrize("typed", REFUSED)
def test_a_value_without_a_counterpart_is_named(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(f"--config=tiny.py {typed}", tmp_path, monkeypatch, capsys)
    assert REFUSED[typed] in answer, answer


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        (
            "sample tiny.py --stop=a --stop=b --start=x",
            "sample --config=tiny.py --prompt=x --stop=a --stop=b",
        ),
        ("pretrain.py tiny.py --n_embd=64", "--config=tiny.py model.d_model=64"),
        ("--config=tiny.py eval train.seed=2", "eval --config=tiny.py train.seed=2"),
        ("--config=tiny.py train.steps=3 data", "data --config=tiny.py train.steps=3"),
        ("--model tiny.py --out_dir=out", "--config=tiny.py --workdir=out"),
        ("tiny.py --workdir=out --plan", "--config=tiny.py --workdir=out --plan"),
        ("--block_size=64 --out_dir=out", "--config=small.py --workdir=out train.seq_len=64"),
        ("tiny.py notes.txt --lr=1", "--config=tiny.py data.path=notes.txt --lr=1"),
        ("tiny.py --n_embd=64", "--config=tiny.py model.d_model=64"),
        ("sample runs/none --max_length=3", "sample --workdir=runs/none sample.max_tokens=3"),
        (
            "sample runs/none --dropout=0.1",
            "sample --workdir=runs/none "
            "model.embd_dropout=0.1 model.attn_dropout=0.1 model.resid_dropout=0.1",
        ),
        *(
            (
                f"--config=gpt2/tiny.py --dropout={value}",
                "--config=gpt2/tiny.py model.embd_dropout=0 model.attn_dropout=0 model.resid_dropout=0",
            )
            for value in ("0", "False")
        ),
    ],
)
def test_the_whole_command_is_proposed(
    line: str,
    proposed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = told(line, tmp_path, monkeypatch, capsys)
    assert answer.partition("; type: ")[2].partition("launch.py ")[2] == proposed, answer


def test_an_option_of_training_is_named_as_such_where_a_run_is_only_read(tmp_path: Path) -> None:
    for words in (("sample", "--overwrite"), ("chat", "--resume"), ("report", "--init_from=scratch")):
        done = called(tmp_path, words[0], "--config=tiny.py", words[1])
        assert done.returncode == 2, done.stdout
        option = words[1].partition("=")[0]
        said = f"'{option}' is left out (it is an option of training; this command only reads a run); type: "
        assert said in done.stderr and done.stderr.endswith(f" {words[0]} --config=tiny.py\n"), done.stderr


def test_every_name_is_of_a_field_or_an_option_or_says_why_not() -> None:
    fields = {info.path for info in fields_of_all()}
    for theirs, ours in SETTINGS.items():
        assert ours in fields or ours in OPTIONS or ours == "", (theirs, ours)
        assert ours or theirs in NOTES, f"{theirs} is left out without a word"
        assert theirs == theirs.lower() and "-" not in theirs
    assert SETTINGS.keys() >= RELATIVE and NOTES.keys() <= SETTINGS.keys()
    assert fields.isdisjoint(SETTINGS), "a name of ours is no name of others"
