"""The command tune after a move of its work directory, of the base's folder, or of the run that is the base.

An average of a tuned run has its own copy of the base, so it outlives the run.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hf_models import transformers
from launched import launched
from mudd_core.cli import main

Told = pytest.CaptureFixture[str]
FIELDS = ("train.threads=1", "train.seq_len=64", "train.steps=2")


def tune(run: str, *words: str, base: str = "base") -> int:
    return main(["tune", f"--base={base}", "--data=chat.jsonl", f"--workdir=runs/{run}", *FIELDS, *words])


def final_hash(run: str) -> str:
    found = json.loads(Path("runs", run, "summary.json").read_text())["final_hash"]
    assert isinstance(found, str)
    return found


def test_a_moved_work_directory_goes_on_with_the_same_bits(here: Path, capsys: Told) -> None:
    for method in ("lora", "full"):
        whole, run, moved = f"whole-{method}", f"run-{method}", f"moved-{method}"
        assert tune(whole, f"tune.method={method}") == 0
        assert tune(run, f"tune.method={method}", "train.stop_at=1") == 75
        (here / "runs" / run).rename(here / "runs" / moved)
        assert main(["data", "show", f"--workdir=runs/{moved}"]) == 0
        assert tune(moved) == 0 and final_hash(moved) == final_hash(whole)
        named = f"--workdir=runs/{moved}" if method == "lora" else f"runs/{moved}"
        assert main(["export", named, f"--to={moved}"]) == 0
        card = (here / moved / "README.md").read_text()
        typed = f"tune --base=base --data=chat.jsonl --workdir=runs/{moved} {' '.join(FIELDS)}"
        assert f"{typed}\n" in card or f"{typed} " in card, card
        assert "load_parameters_path" not in card and "data.tokenizer" not in card
    capsys.readouterr()


def test_a_moved_project_goes_on_without_its_cache_and_its_base(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tune("whole") == 0
    assert tune("mine", "train.stop_at=1") == 75
    there = here.with_name("there")
    here.rename(there)
    monkeypatch.chdir(there)
    shutil.rmtree("runs/cache")
    shutil.rmtree("base")
    assert tune("mine") == 0 and final_hash("mine") == final_hash("whole")


def test_another_run_where_the_folder_was_is_not_taken_for_its_base(here: Path) -> None:
    assert tune("whole") == 0
    assert tune("mine", "train.stop_at=1") == 75
    (here / "runs" / "mine").rename(here / "runs" / "moved")
    shutil.copytree("runs/whole", "runs/mine/base")
    assert tune("moved") == 0 and final_hash("moved") == final_hash("whole")


def test_a_base_that_is_gone_is_named_with_the_way_out(here: Path, capsys: Told) -> None:
    assert tune("mine", "train.stop_at=1") == 75
    (here / "base").rename(here / "new")
    capsys.readouterr()
    assert tune("mine", base="nowhere") == 2
    text = capsys.readouterr().err
    assert "expected the folder with which runs/mine was started, got nowhere, which does not exist" in text
    began = f"--base={here / 'base'}"
    assert f"{began} resumes with the run's own copy" in text
    for name in ("new", str(here / "base"), "base"):
        assert tune("mine", "train.stop_at=1", base=name) == 75
    shutil.rmtree(here / "runs" / "mine" / "base")
    assert tune("mine") == 2
    assert "which does not exist, got base; give --base=FOLDER with its new place" in capsys.readouterr().err
    assert tune("mine", base="new") == 0


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_base_imported_again_is_compared_by_its_hash(here: Path, capsys: Told, method: str) -> None:
    assert tune("mine", f"tune.method={method}", "train.stop_at=1") == 75
    shutil.copytree("base", "other")
    for file in (here / "other").glob("*.safetensors*"):
        file.unlink()
    model = transformers.AutoModelForCausalLM.from_pretrained("base")
    with torch.no_grad():
        model.model.norm.weight[0] += 1
    model.save_pretrained("other")
    shutil.rmtree(here / "runs" / "mine" / "base")
    assert tune("mine", base="other") == 2
    assert "got other (" in capsys.readouterr().err
    assert not (here / "runs" / "mine" / "base").exists()
    assert tune("mine") == 0


@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_run_that_is_the_base_goes_on_from_its_new_place(here: Path, capsys: Told, method: str) -> None:
    assert tune("small", "tune.method=full") == 0
    words = (f"tune.method={method}", "data.template=chatml")
    assert tune("whole", *words, base="runs/small") == 0
    assert tune("mine", *words, "train.stop_at=1", base="runs/small") == 75
    (here / "runs" / "small").rename(here / "runs" / "base")
    capsys.readouterr()
    assert tune("mine", *words, base="runs/small") == 2
    text = capsys.readouterr().err
    assert "runs/mine was started from runs/small (SHA-256 " in text
    assert "which does not exist, got runs/small; give --base=FOLDER with its new place" in text
    assert tune("mine", *words, base="runs/whole/base") == 2
    assert "), which does not exist, got runs/whole/base" in capsys.readouterr().err
    assert tune("mine", *words, base="runs/base") == 0 and final_hash("mine") == final_hash("whole")
    assert main(["export", "--workdir=runs/mine", "--to=out"]) == 0


def test_commands_that_read_a_run_take_the_new_place_of_its_base(here: Path, capsys: Told) -> None:
    for run, rate in (("small", 0.01), ("other", 0.02)):
        assert tune(run, "tune.method=full", f"optim.lr={rate}") == 0
    assert tune("mine", "data.template=chatml", base="runs/small") == 0
    (here / "runs" / "small").rename(here / "runs" / "new")
    capsys.readouterr()
    validate = ["validate", "--workdir=runs/mine"]
    assert main(validate) == 2
    text = capsys.readouterr().err
    assert "the base of runs/mine was runs/small, which does not exist; name its new place with " in text
    assert main([*validate, "--start.load_parameters_path=runs/other"]) == 2
    assert "[lora] start.load_parameters_path: expected the base of these adapters" in capsys.readouterr().err
    place = "--start.load_parameters_path=runs/new"
    assert main([*validate, place]) == 0
    assert main(["export", "--workdir=runs/mine", "--to=out", place]) == 0
    assert "its logits are the run's" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["lora", "full"])
def test_an_average_needs_neither_its_run_nor_its_place(here: Path, method: str) -> None:
    assert tune("mine", f"tune.method={method}", "train.save_every=1", "train.keep_last=0") == 0
    done = launched(here, "average", "runs/mine", "--last=2")
    assert "of steps 1 and 2 of runs/mine in runs/mine-average; to use it:" in done.stdout, done.stderr
    stored = next((here / "runs/mine-average/base/checkpoints/step-0").glob("*.safetensors"))
    assert stored.stat().st_nlink == 2  # the weights of the base take no space again
    shutil.rmtree("runs/mine")
    (here / "runs/mine-average").rename(here / "moved")
    for words in (
        ["validate", "moved"],
        ["sample", "moved", "--prompt=the cat", "sample.max_tokens=2"],
        ["export", "moved", "--to=whole", *(["--merged"] if method == "lora" else [])],
    ):
        done = launched(here, *words)
        assert done.returncode == 0, done.stderr
    assert "launch.py tune" not in (here / "whole" / "README.md").read_text()  # which would repeat its run
