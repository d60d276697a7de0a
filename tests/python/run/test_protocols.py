"""Evaluation protocols: the batches that are read, the ignored targets, and the denominator of the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mudd_core.base.errors import UserError
from mudd_core.config import Config, DataConfig, EvalConfig, TrainConfig, load_config
from mudd_core.config.rules import protocol_faults
from mudd_core.config.saved import config_hash, from_dict, merge_for_resume, to_dict
from mudd_core.config.schema import protocol_of
from mudd_core.run.build.protocols import (
    batches_of,
    mean_loss,
    validated_slots,
    validated_tokens,
    whole_split,
)
from mudd_core.run.loop.trainer import Trainer
from tiny_run import CONFIG

EOS = 0


@dataclass
class FakeRows:
    targets: Any

    @property
    def rows(self) -> int:
        return len(self.targets)

    def arrays(self, first: int, count: int) -> Mapping[str, Any]:
        padding = np.full((max(0, first + count - self.rows), self.targets.shape[1]), -1, np.int32)
        return {"targets": np.concatenate([self.targets[first : first + count], padding])}


def batches(pipeline: str, count: int, **evaluation: Any) -> list[Any]:
    """Return the targets of the batches; sequence i of `count` has i + 1 twice and then the end of its document."""
    targets = np.repeat(np.arange(1, count + 1, dtype=np.int32)[:, None], 3, axis=1)
    targets[:, 2] = EOS
    config = Config(
        train=TrainConfig(batch_size=2, seq_len=3),
        data=DataConfig(pipeline=pipeline),
        eval=EvalConfig(**evaluation),
    )
    rows: Any = FakeRows(targets)
    tokenizer: Any = SimpleNamespace(eos_id=EOS)
    return [batch["targets"].tolist() for batch in batches_of(config, rows, tokenizer)]


def test_which_batches_a_protocol_reads() -> None:
    assert [len(batches("text", rows)) for rows in (1, 4, 5)] == [1, 2, 3]
    assert [len(batches("pack", rows)) for rows in (3, 4, 5, 6)] == [1, 1, 2, 2]  # k B < N - B
    assert [len(batches("features", rows)) for rows in (4, 5, 6)] == [2, 3, 3]
    whole = [len(batches("features", rows, protocol="features")) for rows in (4, 5, 6)]
    assert whole == [2, 2, 3]  # no incomplete batch, as in jax-lm's program
    assert len(batches("pile", 20, max_batches=3)) == 3
    assert len(batches("text", 20, max_batches=3, batch_size=4)) == 3


@pytest.mark.parametrize(
    ("pipeline", "evaluation", "documents", "expected"),
    [
        ("text", {}, 0, 4),
        ("text", {"max_batches": 1}, 0, 1),
        ("text", {"documents": 3}, 6, 2),  # half of the documents: half of the sequences
        ("text", {"documents": 3}, 0, 4),  # the number of documents is unknown
        ("pile", {"documents": 3}, 0, 2),
        ("pile", {"documents": 3, "max_batches": 1}, 0, 1),
        ("pack", {}, 0, 3),
    ],
)
def test_the_slots_of_a_validation_count_the_batches_that_it_takes(
    pipeline: str, evaluation: dict[str, int], documents: int, expected: int
) -> None:
    config = Config(
        train=TrainConfig(batch_size=2, seq_len=3),
        data=DataConfig(pipeline=pipeline),
        eval=EvalConfig(**evaluation),
    )
    assert validated_slots(config, 7, documents) == expected * 2 * 3


@pytest.mark.parametrize(("pipeline", "rows"), [("text", 7), ("features", 7), ("pack", 6)])
def test_the_tokens_of_a_validation_leave_out_what_fills_up_a_batch(pipeline: str, rows: int) -> None:
    config = Config(train=TrainConfig(batch_size=2, seq_len=3), data=DataConfig(pipeline=pipeline))
    assert validated_tokens(config, 7, 0) == rows * 3
    assert validated_tokens(config, 7, 0) <= validated_slots(config, 7, 0)


@pytest.mark.parametrize("pipeline", ["text", "pile", "rows"])
def test_the_first_documents_alone_are_validated(pipeline: str) -> None:
    found = batches(pipeline, 8, documents=3)
    assert found == [[[1, 1, EOS], [2, 2, EOS]], [[3, 3, EOS], [-1, -1, -1]]]
    assert batches(pipeline, 8, documents=100) == batches(pipeline, 8)


def test_means_of_the_protocols() -> None:
    sums = [(6.0, 3), (4.0, 1)]
    assert mean_loss("text", sums, slots=4) == mean_loss("pack", sums, slots=4) == 10 / 4
    assert mean_loss("counted", sums, slots=4) == 10 / 4
    assert mean_loss("features", sums, slots=4) == (6 / 4 + 4 / 4) / 2
    assert mean_loss("rows", sums, slots=4) == pytest.approx(((6 + 4) / 8) / ((3 + 1) / 8))
    assert np.isnan(mean_loss("rows", [(0.0, 0)], slots=4)) and np.isnan(mean_loss("text", [], slots=4))


def test_a_protocol_of_another_pipeline_is_refused() -> None:
    for pipeline, protocol in (
        ("text", "text"),
        ("megatron", "pile"),
        ("blocks", "blocks"),
        ("x.py:f", "pile"),
    ):
        config = Config(data=DataConfig(pipeline=pipeline))
        assert protocol_of(config) == protocol and protocol_faults(config) == []
        assert protocol_faults(replace(config, eval=EvalConfig(protocol=protocol))) == []
    with pytest.raises(UserError, match=r"eval\.protocol: expected auto or text for .*, got pack"):
        load_config("tiny.py", ["eval.protocol=pack"])


def test_the_mean_of_features_is_over_counted_targets_unless_it_is_asked_for() -> None:
    config = Config(data=DataConfig(pipeline="features"))
    slots = replace(config, eval=EvalConfig(protocol="features"))
    assert (protocol_of(config), protocol_of(slots)) == ("counted", "features")
    assert protocol_faults(config) == protocol_faults(slots) == []


@pytest.mark.parametrize(
    ("pipeline", "now", "earlier"), [("features", "counted", "features"), ("pile", "whole_batches", "pile")]
)
def test_saved_runs_keep_the_protocol_of_their_version(pipeline: str, now: str, earlier: str) -> None:
    config = Config(data=DataConfig(pipeline=pipeline))
    old = to_dict(config)
    assert old["eval"]["protocol"] == now
    assert from_dict(old).eval.protocol == now and config_hash(from_dict(old)) == config_hash(config)
    old["eval"]["protocol"] = "auto"  # as earlier versions wrote it
    saved = from_dict(old)
    assert protocol_of(saved) == earlier
    assert merge_for_resume(saved, config) == (saved, [])
    with pytest.raises(UserError, match=rf"eval\.protocol: saved '{earlier}', asked '{now}'"):
        merge_for_resume(saved, replace(config, eval=EvalConfig(protocol=now)))


def test_validate_takes_the_whole_split_of_rows() -> None:
    limited = Config(data=DataConfig(pipeline="rows"), eval=EvalConfig(max_batches=2))
    assert whole_split(limited).eval.max_batches == 0
    text = replace(limited, data=DataConfig())
    assert whole_split(text) == text


def test_a_run_validates_the_first_documents_of_its_text(tiny_text: Path) -> None:
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "eval.max_batches=0")
    whole = Trainer(load_config(str(CONFIG), data)).validate()
    some = Trainer(load_config(str(CONFIG), [*data, "eval.documents=2"])).validate()
    assert 0 < some.targets < whole.targets and some.val_loss != whole.val_loss


def test_a_run_estimates_the_validation_that_it_takes(tiny_text: Path) -> None:
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}")
    config = load_config(str(CONFIG), [*data, "eval.max_batches=1", "train.steps=2"])
    with Trainer(config) as trainer:
        trainer.step()
        slots = trainer._run.components.validated_slots
    assert slots == config.train.batch_size * config.train.seq_len
