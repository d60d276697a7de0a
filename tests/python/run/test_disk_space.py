"""A start and --plan compare the disk space for a run's checkpoints with the free space, before text is read."""

from __future__ import annotations

from pathlib import Path

import pytest

import mudd_core as mc
from checkpoint_cases import faults
from mudd_core import checkpoint
from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.cli import main
from mudd_core.run.build.disk_space import most_at_once
from mudd_core.run.loop.trainer import Trainer
from rank_runs import config_of, on_ranks
from tiny_run import CONFIG

MIB = 1 << 20
STEPS = ("train.steps=4", "train.save_every=1", "train.eval_every=4", "train.keep_last=3")
NEEDED = "of free disk space for a checkpoint, got"


def words(text: Path, folder: Path, *more: str) -> list[str]:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}")
    return [f"--config={CONFIG}", f"--workdir={folder}", *data, *STEPS, *more]


def checkpoint_size(folder: Path) -> int:
    newest = folder / "checkpoints" / f"step-{checkpoint.list_steps(folder / 'checkpoints')[-1]}"
    return sum(file.stat().st_size for file in newest.iterdir())


def test_a_start_without_space_for_one_checkpoint_is_refused_before_text_is_read(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = words(tiny_text, tmp_path / "run", f"data.cache_dir={tmp_path / 'cache'}")
    with faults(shrink_free_space=(MIB,)):
        assert main(typed) == 2
    error = capsys.readouterr().err
    assert f"[workdir] {tmp_path / 'run'}: expected" in error and f"{NEEDED} 1.000 MiB" in error
    assert "--workdir=PATH" in error and "train.save=false" in error
    assert not list(tmp_path.rglob("tokens.h5")) and not (tmp_path / "run").exists()
    with faults(shrink_free_space=(MIB,)):
        assert main([*typed, "train.save=false"]) == 0
    assert NEEDED not in capsys.readouterr().err


def test_a_run_whose_checkpoints_will_not_all_fit_is_warned_with_the_number_that_does(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(tiny_text, tmp_path / "enough")) == 0
    printed = capsys.readouterr()
    assert "[train.keep_last]" not in printed.out + printed.err
    space = 3 * checkpoint_size(tmp_path / "enough")  # a run needs four: three that it keeps and the next one
    assert space > 1.7 * MIB, "a save needs a MiB beside the checkpoint"
    with faults(shrink_free_space=(space,)):
        assert main(words(tiny_text, tmp_path / "run")) == 0
    printed = capsys.readouterr()
    warning = printed.out + printed.err
    assert warning.count("[train.keep_last]") == 1 and "up to 4 checkpoints at once" in warning
    assert "set train.keep_last=2, or choose another disk with --workdir=PATH" in warning


def test_the_checkpoints_of_a_run_that_resumes_count_as_space(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = words(tiny_text, tmp_path / "run", "train.steps=8")
    assert main([*typed, "train.stop_at=4"]) == 75
    kept = checkpoint.list_steps(tmp_path / "run" / "checkpoints")
    assert len(kept) == 3
    capsys.readouterr()
    with faults(shrink_free_space=(MIB + MIB // 2,)):
        assert main(typed) == 2
    assert NEEDED in capsys.readouterr().err
    with faults(shrink_free_space=(2 * MIB,)):  # enough for one more checkpoint, not for four
        assert main(typed) == 0
    printed = capsys.readouterr()
    assert "[train.keep_last]" not in printed.out + printed.err
    with faults(shrink_free_space=(0,)):  # there is nothing left to save
        assert main(typed) == 0


def test_a_plan_shows_the_space_of_checkpoints_and_of_a_token_cache(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = [*words(tiny_text, tmp_path / "run", f"data.cache_dir={tmp_path / 'cache'}"), "--plan"]
    assert main(typed) == 0
    enough = capsys.readouterr().out
    assert "for up to 4 checkpoints at once" in enough and "DOES NOT FIT" not in enough
    source = sum(file.stat().st_size for file in tiny_text.iterdir())
    assert f"about {2 * source / 1024:.1f} KiB for the token cache" in enough
    with faults(shrink_free_space=(MIB,)):
        assert main(typed) == 0
    assert "DOES NOT FIT: [workdir]" in capsys.readouterr().out
    with faults(shrink_free_space=(2 * MIB,)):
        assert main(typed) == 0
    assert "[train.keep_last] the run needs" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_all_ranks_of_a_run_without_disk_space_end_with_2(tiny_text: Path, tmp_path: Path) -> None:
    codes = []

    def work(comm: mc.dist.Comm) -> None:
        try:
            Trainer(config_of(tiny_text), tmp_path / "run", comm=comm)
        except (UserError, ReportedElsewhereError) as error:
            codes.append((type(error), error.exit_code))

    with faults(shrink_free_space=(MIB,)):
        on_ranks(work, 2)
    assert sorted(codes, key=str) == [(ReportedElsewhereError, 2), (UserError, 2)]


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        (["train.save_every=0"], 1),
        (["train.save_every=0", "train.keep_last=0"], 1),
        (["train.save_every=10"], 4),
        (["train.save_every=10", "train.keep_last=0"], 11),
        (["train.save_every=10", "train.keep_every=25"], 6),
        (["train.save_every=60"], 2),
        (["train.save_every=10", "train.save_at=0,1,2,4,200"], 8),
        (["train.save_every=0", "train.save_at=0,1"], 3),
        (["train.save_policy=best", "train.eval_every=50", "train.keep_last=1"], 2),
    ],
)
def test_the_most_checkpoints_at_a_time_follow_from_the_config(fields: list[str], count: int) -> None:
    config = mc.load_config("tiny.py", ["train.steps=100", *fields])
    assert most_at_once(config) == count
