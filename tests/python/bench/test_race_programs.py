"""The PyTorch programs of the race learn a pattern, take turns, validate by the protocol, and refuse wrong data."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mudd_core import load_config
from mudd_core.cli.race.data_files import write_data
from mudd_core.cli.race.turns import Program, take_turns
from places import ROOT

RACE = ROOT / "bench" / "race"
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench" / "baselines"), str(RACE)]

import nanochat  # noqa: E402
import nanogpt  # noqa: E402
import race_data  # noqa: E402
import torch_race  # noqa: E402
import torch_step  # noqa: E402
from torch_race import Plan, Recipe  # noqa: E402

VOCAB, LENGTH, TARGETS, BYTES, STEPS = 32, 16, 160, 500.5, 8
RECIPES: dict[str, Callable[[Plan], Recipe]] = {"nanogpt": nanogpt.NanoGpt, "nanochat": nanochat.Nanochat}
# The rates of nanochat shrink with the batch, so a batch of 64 tokens needs a large factor.
RATES = {"nanogpt": "--rate=2", "nanochat": "--rate=60"}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data folder in which each id determines the next one."""
    ids = [1]
    for _ in range(3000):
        ids.append((5 * ids[-1] + 3) % VOCAB)
    np.array(ids, "<u2").tofile(tmp_path / "train.bin")
    # The remainder of less than a sequence is no part of the validation.
    np.array(ids[: TARGETS + LENGTH], "<u2").tofile(tmp_path / "val.bin")
    write_fields(tmp_path)
    return tmp_path


def write_fields(folder: Path, **changed: Any) -> None:
    fields: dict[str, float] = {"vocab_size": VOCAB, "seq_len": LENGTH, "batch_size": 4}
    fields |= {"val_bytes": BYTES, "val_targets": TARGETS}
    (folder / "data.json").write_text(json.dumps({**fields, **changed}))


def arguments(folder: Path, name: str, *more: str) -> list[str]:
    return [f"--data={folder}", f"--steps={STEPS}", "--threads=1", RATES[name], *more]


def program(folder: Path, name: str, *more: str) -> list[str]:
    return [sys.executable, str(RACE / f"{name}.py"), *arguments(folder, name, *more)]


def result_here(folder: Path, name: str, *more: str) -> dict[str, float]:
    out = folder / "here.json"
    torch_race.main(None, RECIPES[name], arguments(folder, name, f"--out={out}", *more))
    found: dict[str, float] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_a_program_learns_and_equal_seeds_have_equal_results(folder: Path, name: str) -> None:
    out = folder / "result.json"
    done = subprocess.run(
        program(folder, name, "--seed=3", f"--out={out}"), capture_output=True, text=True, check=True
    )
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+), ", done.stdout, re.MULTILINE)]
    # New weights guess: the loss of equal probabilities, but for their size.
    assert len(losses) == STEPS and losses[0] == pytest.approx(math.log(VOCAB), abs=0.2)
    assert losses[-1] < 0.7 * losses[0]
    found = json.loads(out.read_text())
    assert found["val_loss"] < 0.7 * losses[0] and found["seconds"] > 0
    assert found["val_bits_per_byte"] == pytest.approx(found["val_loss"] * TARGETS / math.log(2) / BYTES)
    assert result_here(folder, name, "--seed=3")["val_loss"] == found["val_loss"]
    one_step = [result_here(folder, name, "--steps=1", f"--seed={seed}")["val_loss"] for seed in (3, 4)]
    assert one_step[0] != one_step[1]


def test_both_programs_take_their_steps_in_turn(folder: Path) -> None:
    programs = [
        Program(program(folder, name, "--steps=2", "--in-turn"), dict(os.environ)) for name in RECIPES
    ]
    for report in take_turns(programs, 2):
        assert report is not None and list(report) == ["seconds"]
        seconds = report["seconds"]
        assert isinstance(seconds, list) and len(seconds) == 2
        assert all(isinstance(one, float) and one > 0 for one in seconds)


class Bigrams(nn.Module):
    """A model that looks its logits up in a table."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table)

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.table[inputs].flatten(0, 1), targets.flatten())


def test_the_validation_has_every_target_of_whole_sequences_once(folder: Path) -> None:
    data = race_data.read_data(folder)
    table = np.random.default_rng(0).normal(size=(VOCAB, VOCAB)).astype(np.float32)
    ids = np.fromfile(folder / "val.bin", "<u2")[: TARGETS + 1].astype(np.int64)
    logits = table.astype(np.float64)[ids[:-1]]
    nats = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(TARGETS), ids[1:]]
    loss = torch_race.validate(Bigrams(torch.from_numpy(table)), data)
    # 3e-7 is the rounding of losses of about 4 in fp32.
    assert loss == pytest.approx(nats.mean(), rel=3e-7)
    found = torch_race.result(loss, data, 2.0)
    # As above.
    assert found["val_bits_per_byte"] == pytest.approx(nats.sum() / math.log(2) / BYTES, rel=3e-7)
    assert found["seconds"] == 2.0
    write_fields(folder, val_bytes=0)
    assert torch_race.result(loss, race_data.read_data(folder), 2.0)["val_bits_per_byte"] is None


def test_a_head_of_zeros_has_the_loss_of_equal_probabilities(folder: Path) -> None:
    model = nanochat.Model(VOCAB, LENGTH)
    nn.init.zeros_(model.head.weight)
    loss = torch_race.validate(model, race_data.read_data(folder))
    # Half an ulp of fp32.
    assert loss == pytest.approx(math.log(VOCAB), rel=1e-7)


def test_the_data_of_a_race_are_read(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    words = [f"data.path={tiny_text}", f"data.cache_dir={tmp_path / 'cache'}", "train.seq_len=32"]
    config = load_config("tiny.py", [*words, "data.tokenizer=bytes"])
    write_data(config, tmp_path / "data")
    data = race_data.read_data(tmp_path / "data")
    assert (data.seq_len, data.batch_size) == (32, config.train.batch_size)
    assert sum(targets.numel() for _, targets in data.validation(8)) == data.val_targets
    # One byte is one token, except the end of each document.
    assert 0.9 * data.val_targets < data.val_bytes <= data.val_targets


def test_batches_are_sequences_of_the_training_ids(folder: Path) -> None:
    data = race_data.read_data(folder)
    inputs, targets = data.batch(0, 5, 7)
    assert inputs.shape == targets.shape == (7, LENGTH)
    assert (targets == (5 * inputs + 3) % VOCAB).all() and (inputs[:, 1:] == targets[:, :-1]).all()
    assert (data.batch(0, 5, 7)[0] == inputs).all()
    assert (data.batch(0, 6, 7)[0] != inputs).any() and (data.batch(1, 5, 7)[0] != inputs).any()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"val_targets": TARGETS + LENGTH}, r"val_targets: expected 160, .* sequences of 16 in val\.bin, got 176$"),
        ({"val_targets": TARGETS - LENGTH}, "val_targets: expected 160, .*, got 144$"),
        ({"val_bytes": -1}, "val_bytes: expected a number of bytes, or 0 if it is not known, got -1$"),
        ({"seq_len": True}, "seq_len: expected a positive integer, got True$"),
        ({"seq_len": 5000}, r"train\.bin: expected at least 5001 ids of 2 bytes each, got 6002 bytes$"),
        ({"vocab_size": 1 << 17, "seq_len": 1600}, r"train\.bin: expected at least 1601 ids of 4 bytes each, got 6002"),
        ({"vocab_size": 31}, r"train\.bin: expected ids below vocab_size 31, got 31$"),
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(folder: Path, changed: dict[str, Any], message: str) -> None:
    write_fields(folder, **changed)
    with pytest.raises(SystemExit, match=rf"^\[race\] --data: [^\n]*{message}"):
        race_data.read_data(folder)


def test_missing_and_broken_files_are_refused_with_one_line(folder: Path) -> None:
    absent = [sys.executable, str(RACE / "nanogpt.py"), "--data=absent", "--steps=1", "--in-turn"]
    done = subprocess.run(absent, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    path = Path("absent") / "data.json"
    expected = f"expected a folder with train.bin, val.bin and data.json, got no file {path}"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"[race] --data: {expected}\n")
    (folder / "val.bin").unlink()
    with pytest.raises(SystemExit, match=r"val\.bin: expected at least 17 ids .*, got no such file$"):
        race_data.read_data(folder)
    for text, message in (
        ("{", "expected a JSON object, got an error"),
        ("[]", "with the fields vocab_size,"),
    ):
        (folder / "data.json").write_text(text)
        with pytest.raises(SystemExit, match=rf"data\.json: .*{message}"):
            race_data.read_data(folder)


def test_wrong_arguments_and_a_diverged_run_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("--steps=0", "--rate=nan", "--seed=-1", "--out=absent/file.json", "--in-turn"):
        with pytest.raises(SystemExit):
            torch_race.parse(None, [f"--data={folder}", "--steps=3", f"--out={folder}/out.json", wrong])
        assert wrong.split("=")[0] in capsys.readouterr().err
    with pytest.raises(
        SystemExit, match=r"^\[race\] step 1: the loss is nan; pass a smaller --rate than 1e\+30"
    ):
        result_here(folder, "nanogpt", "--rate=1e30")


@pytest.mark.parametrize(
    ("fault", "found"), [("loss", "nan"), ("gradients", r"3\.\d+, but .* differ by 1\.0e\+00 of their norm")]
)
def test_a_compiled_model_with_other_results_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str, found: str
) -> None:
    class Broken(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
            loss: Tensor = self.model(inputs, targets)
            return loss * math.nan if fault == "loss" else 2 * loss - loss.detach()

    tails = []

    def compiled(model: nn.Module, loss_of: object, scalar_tails: bool) -> nn.Module:
        tails.append(scalar_tails)
        return model if scalar_tails and works else Broken(model)

    monkeypatch.setattr(torch_step, "compiled", compiled)
    model = nanogpt.Model(VOCAB, LENGTH)
    batch = race_data.read_data(folder).batch(0, 0, 4)
    before = [weight.clone() for weight in model.parameters()]
    works = True
    assert torch_race.compiled_model(model, batch) is model and tails == [False, True]
    assert all(w.grad is None and (w == b).all() for w, b in zip(model.parameters(), before, strict=True))
    works = False
    with pytest.raises(SystemExit, match="the loss of the first batch is " + found):
        torch_race.compiled_model(model, batch)
