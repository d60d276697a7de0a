"""Where `export` and `average` write, by the name in --to, and the losses in the card."""

from __future__ import annotations

from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.checkpoint.weights import weight_files
from mudd_core.cli import main
from tiny_run import TinyRun

WORDS = (
    "train.steps=4",
    "train.save_every=2",
    "train.eval_every=2",
    "train.keep_last=0",
    "optim.warmup_steps=0",
)


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return TinyRun(tmp_path_factory.mktemp("places") / "run", tiny_text, WORDS).trained()


@pytest.mark.parametrize("name", ["w.safetensors", "w.bin", "w.pt", "w.h5"])
def test_the_name_of_a_file_with_weights_is_no_folder(
    run: TinyRun, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to, ending = tmp_path / name, Path(name).suffix
    for command, *words in (("export",), ("average", "--last=2")):
        assert main([command, f"--workdir={run.workdir}", f"--to={to}", *words]) == 2
        assert (
            f"[{command}] --to: expected a folder, got the name of a file, {to}; leave {ending} out, or add / for a "
            "folder of this name"
        ) in capsys.readouterr().err
    with pytest.raises(UserError, match=r"\[export\] folder: expected a folder, got the name of a file"):
        mc.export(run.workdir, to)
    assert not to.exists()


@pytest.mark.parametrize("name", ["w.bin/", "w.safetensors/"])
def test_a_slash_after_such_a_name_makes_it_a_folder(run: TinyRun, name: str, tmp_path: Path) -> None:
    to = f"{tmp_path}/{name}"
    assert main(["export", f"--workdir={run.workdir}", f"--to={to}"]) == 0
    assert weight_files(Path(to)) == [Path(to) / "model.safetensors"]


def test_a_loss_is_before_the_training_only_if_step_0_was_validated(
    run: TinyRun, tiny_text: Path, tmp_path: Path
) -> None:
    at_start = TinyRun(tmp_path / "run", tiny_text, (*WORDS, "eval.at_start=true")).trained()
    for one, steps in ((run, [2, 4]), (at_start, [0, 2, 4])):
        losses = {row["step"]: f"{row['val_loss']:.4f}" for row in one.rows() if "val_loss" in row}
        assert sorted(losses) == steps
        mc.export(one.workdir, tmp_path / f"out-{len(steps)}")
        card = (tmp_path / f"out-{len(steps)}" / "README.md").read_text()
        held = f"{losses[0]} before, {losses[4]} after" if 0 in losses else losses[4]
        assert f"; held-out {held} (nats per target token)" in card
