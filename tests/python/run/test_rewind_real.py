"""Rewinds of the real engine: packed weights, optimizer moments, and exit code 76 for a far too high learning rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mudd_core import checkpoint
from mudd_core.base.errors import DivergedError
from mudd_core.config import load_config
from mudd_core.run.loop.trainer import Trainer
from tiny_run import CONFIG


def trainer_of(workdir: Path, text: Path, *words: str) -> Trainer:
    data = [f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}"]
    base = ["train.steps=10", "train.save_every=2", "train.eval_every=1", "optim.warmup_steps=0"]
    return Trainer(load_config(CONFIG, [*data, *base, *words]), workdir)


@pytest.mark.parametrize("words", [("optim.name=adamw",), ("optim.name=sgd", "train.precision=bf16")])
def test_a_bad_moment_is_taken_back_with_the_packed_weights(
    tmp_path: Path, tiny_text: Path, words: tuple[str, ...]
) -> None:
    with trainer_of(tmp_path / "whole", tiny_text, *words) as trainer:
        while trainer.step_done < 4:
            trainer.step()
            if trainer.step_done == 4:
                trainer.save()
        saved = trainer.validate()
        trainer.step()
        moment = trainer.engine.state_tensors(writable=True)["first_moment/embed"]
        moment[3, 1] = np.nan
        record = trainer.step()
        assert (record.step, record.skipped, trainer.step_done) == (6, True, 4)
        assert trainer.validate().val_loss == saved.val_loss  # reads the packed weights
        whole = trainer.fit()
    assert (whole.rewinds, whole.step) == (1, 10)
    # A run that reads the same batches: 0 to 3, then 6 to 11.
    with trainer_of(tmp_path / "other", tiny_text, *words) as trainer:
        trainer._state.guard.batch_index = lambda at: at if at < 4 else at + 2  # type: ignore[method-assign]
        other = trainer.fit()
    assert other.final_hash == whole.final_hash


def test_a_rate_that_spoils_the_first_update_saves_nothing(tmp_path: Path, tiny_text: Path) -> None:
    with trainer_of(tmp_path, tiny_text, "optim.lr=3e38") as trainer:
        with pytest.raises(DivergedError, match=r"not finite: \S+ at element [\d,]+ of '"):
            trainer.fit()
        with pytest.raises(DivergedError):
            trainer.save()
    assert checkpoint.list_steps(tmp_path / "checkpoints") == []
