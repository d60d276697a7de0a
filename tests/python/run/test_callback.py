"""The callback of fit() and Trainer, trainer.lr, and the note of a finished run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.config import Config
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.loop.trainer import Trainer

SMALL = {
    "model.n_layer": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "train.steps": 6,
    "train.seq_len": 16,
    "train.batch_size": 2,
    "data.tokenizer": "bytes",
    "eval.max_batches": 1,
}

LONGER = re.compile(
    r"trainer\.close\(\); mc\.Trainer\(trainer\.config\.replace\((\{.*\})\), ('.*')\)\.fit\(\)"
)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat " * 400)
    found: Config = mc.load_config("tiny.py").replace({**SMALL, "data.path": str(text)})
    return found


def test_a_callback_is_called_after_each_step_and_changes_no_bit(config: Config, tmp_path: Path) -> None:
    seen: list[tuple[int, float]] = []

    def look(trainer: Trainer) -> None:
        norm = float(np.linalg.norm(trainer.model.parameters["embed"]))
        seen.append((trainer.step_done, norm))
        if trainer.step_done == 3:
            trainer.validate()
            trainer.save()

    with mc.Trainer(config, tmp_path / "run", callback=look) as trainer:
        summary = trainer.fit(progress=False)
    assert [step for step, _ in seen] == [1, 2, 3, 4, 5, 6]
    assert len({norm for _, norm in seen}) == 6  # the weights of each step
    with mc.Trainer(config, tmp_path / "plain") as trainer:
        assert trainer.fit(progress=False).final_hash == summary.final_hash


def test_the_callback_of_fit_replaces_the_one_of_the_trainer(config: Config, tmp_path: Path) -> None:
    first: list[int] = []
    second: list[int] = []
    with mc.Trainer(config, tmp_path / "run", callback=lambda t: first.append(t.step_done)) as trainer:
        trainer.fit(2, progress=False, callback=lambda t: second.append(t.step_done))
        trainer.fit(1, progress=False)
    assert (first, second) == ([3], [1, 2])


def test_a_callback_that_raises_ends_the_fit_with_a_saved_run(config: Config, tmp_path: Path) -> None:
    def fail(trainer: Trainer) -> None:
        if trainer.step_done == 3:
            raise ZeroDivisionError("of the user")

    with (
        mc.Trainer(config, tmp_path / "run") as trainer,
        pytest.raises(ZeroDivisionError, match="of the user"),
    ):
        trainer.fit(progress=False, callback=fail)
    saved = mc.load_run(tmp_path / "run")
    assert saved.step == 3 and re.search(
        r"step 3 of 6; loss \d\.\d{4} nats; .*; tokens 96; date 2", repr(saved)
    )
    with mc.Trainer(tmp_path / "run") as trainer:
        resumed = trainer.fit(progress=False).final_hash
    with mc.Trainer(config, tmp_path / "plain") as trainer:
        assert trainer.fit(progress=False).final_hash == resumed


@pytest.mark.parametrize("name", ["fit", "step", "iter"])
def test_a_callback_may_not_train(name: str, config: Config, tmp_path: Path) -> None:
    def train(trainer: Trainer) -> object:
        return {"fit": trainer.fit, "step": trainer.step, "iter": lambda: next(iter(trainer))}[name]()

    with (
        mc.Trainer(config, tmp_path / "run") as trainer,
        pytest.raises(RuntimeError, match="does not train"),
    ):
        trainer.fit(progress=False, callback=train)


@pytest.mark.parametrize("value", [3, "print", [print]])
def test_a_callback_is_a_function(value: object, config: Config, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"\[Trainer\] callback: expected a function of the trainer"):
        mc.Trainer(config, tmp_path / "run", callback=value)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    with mc.Trainer(config) as trainer, pytest.raises(TypeError, match=r"\[fit\] callback: expected"):
        trainer.fit(callback=value)  # type: ignore[arg-type]


def test_the_learning_rate_is_that_of_the_next_update(config: Config) -> None:
    with mc.Trainer(config) as trainer:
        rates = [trainer.lr]
        trainer.fit(progress=False, callback=lambda t: rates.append(t.lr))
        assert rates == [learning_rate(config, step) for step in range(7)]
        assert trainer.history["lr"].tolist() == rates[:6]
        with pytest.raises(AttributeError, match=r"type mc.Trainer\(config.replace\('optim.lr', 0.1\)\)"):
            trainer.lr = 0.1  # type: ignore[misc]


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_a_finished_run_names_the_line_that_trains_further(
    schedule: str, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mc.Trainer(
        config.replace({"optim.schedule": schedule, "optim.warmup_steps": 2}), tmp_path / "run"
    ) as trainer:
        trainer.fit()
        assert "finished" not in "".join(capsys.readouterr())
        trainer.fit()
        text = "".join(capsys.readouterr())
        said = "note: [fit] the run is finished: 6 of 6 steps; to train 6 more: "
        assert text.startswith(said + "trainer.close(); mc.Trainer(")
        line = LONGER.fullmatch(text.removeprefix(said).strip())
        assert line is not None, text
        fields, path = map(ast.literal_eval, line.groups())
        trainer.close()  # in the line too: the first Trainer is open when the note appears
        longer = mc.Trainer(trainer.config.replace(fields), path)
    with longer:
        assert longer.fit(progress=False).step == (12 if schedule == "constant" else 6)
    assert (
        len(list((tmp_path / ("run" if schedule == "constant" else "run-to-12")).glob("checkpoints/*"))) > 0
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: mc.Trainer(c, output_dir="x"), 'type mc.Trainer(config, workdir="runs/x")'),
        (lambda c: mc.Trainer(c, max_steps=3), "set the field train.steps of the config"),
        (
            lambda c: mc.Trainer(c, colour=3),
            "the arguments are config, workdir, model, comm, callback, trust_code",
        ),
        (lambda c: mc.Trainer(c).fit(max_steps=3), "type fit(steps=100)"),
        (lambda c: mc.load_run(".", checkpoint=3), "type load_run(path, step=100)"),
        (lambda c: mc.tune(model="x", dataset="y"), 'type mc.tune("folder", "chat.jsonl", "runs/mine")'),
        (lambda c: mc.Model(c).generate([1], max_new_tokens=3), "type model.generate(ids, max_tokens=100)"),
        (lambda c: mc.Model(c).generate([1], tokens_more=3), "the arguments are tokens, max_tokens, "),
        (lambda c: mc.Model(c)([1], labels=[1]), "type loss, gradients = model.loss_and_gradients("),
    ],
)
def test_arguments_of_other_libraries_have_a_hint(call: object, message: str, config: Config) -> None:
    assert callable(call)
    with pytest.raises(TypeError) as caught:
        call(config)
    assert message in str(caught.value) and "there is no argument '" in str(caught.value)


def test_a_finished_run_of_adapters_names_no_line(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mc.Trainer(config, tmp_path / "base") as trainer:
        trainer.fit(progress=False)
    adapters = {"tune.method": "lora", "start.load_parameters_path": str(tmp_path / "base")}
    with mc.Trainer(config.replace(adapters), tmp_path / "run") as trainer:
        trainer.fit(progress=False)
        trainer.fit()
    assert "finished: 6 of 6 steps\n" in "".join(capsys.readouterr())
