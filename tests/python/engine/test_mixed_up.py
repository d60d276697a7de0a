"""Arguments of the notebook's classes that are easily mixed up: a one-line error says what to pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.engine.argument_check import run_config

CONFIG = mc.load_config(
    "tiny.py",
    [
        "train.batch_size=2",
        "train.seq_len=8",
        "model.vocab_size=50",
        "model.max_seq_len=8",
        "model.n_layer=1",
    ],
)
GOOD = {"inputs": [[1, 2]], "targets": [[2, 3]]}


@pytest.fixture(scope="module")
def model() -> mc.Model:
    return mc.Model(CONFIG.model)


def test_a_trainer_takes_the_name_of_a_config(tmp_path: Path) -> None:
    assert run_config("tiny") == run_config(Path("tiny.py")) == mc.load_config("tiny.py")
    with pytest.raises(ValueError, match=r"did you mean 'small\.py'"):
        mc.Trainer("smal.py", tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


CALLS: dict[str, tuple[Callable[[], Any], str]] = {
    "trainer without a config": (lambda: mc.Trainer(None), r'pass mc.load_config("tiny.py")'),  # type: ignore[arg-type]
    "trainer with a model's config": (lambda: mc.Trainer(CONFIG.model), "pass mc.Config(model=...)"),  # type: ignore[arg-type]
    "trainer with a model's name": (lambda: mc.Trainer(CONFIG, model="gpt2"), "got the string 'gpt2'"),
    "trainer with a config as model": (lambda: mc.Trainer(CONFIG, model=CONFIG.model), "pass mc.Model("),
    "model of a name": (lambda: mc.Model("gpt2"), "got the string 'gpt2'"),
    "model with words as seed": (lambda: mc.Model(CONFIG.model, seed="x"), "integer"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_kind_of_object_is_named(name: str) -> None:
    call, says = CALLS[name]
    with pytest.raises(TypeError, match=re.escape(says)) as caught:
        call()
    assert "\n" not in str(caught.value)


BATCHES: dict[str, tuple[Any, type[Exception], str]] = {
    "ids alone": ([[1, 2, 3]], TypeError, "ids[:, :-1] and ids[:, 1:]"),
    "a pair": (([[1]], [[2]]), TypeError, "got a value of type tuple"),
    "text": ("some text", TypeError, "got the string 'some text'"),
    "nothing": (None, TypeError, "got a value of type NoneType"),
    "a part missing": ({"inputs": [[1]]}, ValueError, "expected inputs, targets"),
    "ragged rows": (
        {"inputs": [[1, 2], [3]], "targets": [[1, 2], [3]]},
        ValueError,
        "got a ragged list; pad",
    ),
    "texts": ({"inputs": ["ab"], "targets": ["cd"]}, TypeError, "pass trainer.tokenizer.encode(text)"),
    "three axes": ({"inputs": np.zeros((1, 2, 3), int), "targets": [[1]]}, ValueError, "got shape (1, 2, 3)"),
    "no ids": ({"inputs": [], "targets": []}, ValueError, "at least one id"),
    "another shape": (
        {"inputs": [[1, 2]], "targets": [[1]]},
        ValueError,
        "expected shape (1, 2), got (1, 1)",
    ),
    "a mask of text": (
        {**GOOD, "key_mask": [[1, 2], [3]]},
        ValueError,
        "[model] key_mask: expected sequences of one",
    ),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_wrong_batch_is_named(name: str, model: mc.Model) -> None:
    batch, kind, says = BATCHES[name]
    trainer = mc.Trainer(CONFIG, model=model)
    calls: list[Callable[[Any], Any]] = [model.loss, model.loss_and_gradients]
    for call in calls if batch is None else [*calls, trainer.step]:  # step(None) uses the run's data
        with pytest.raises(kind, match=re.escape(says)) as caught:
            call(batch)
        assert "\n" not in str(caught.value)


def test_lists_are_batches(model: mc.Model) -> None:
    arrays = {name: np.array(ids, np.int32) for name, ids in GOOD.items()}
    assert model.loss(GOOD) == model.loss(arrays)
    assert model.logits([1, 2]).shape == (2, 50)
    with pytest.raises(ValueError, match="expected 2 samples, got 1"):
        mc.Trainer(CONFIG, model=model).step(GOOD)
