"""A missing input is reported before a tokenizer or a cache is built, no folder is left, and the advice is right."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import Config
from mudd_core.engine import memory
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build.memory_advice import advice
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import RunFolder
from tiny_run import ROOT

LARGE = ("model.d_model=32768", "model.n_head=256", "model.n_layer=64", "model.d_ff=131072")
WRONG = {
    "text": (("--config=tiny.py", "data.path=/none/text.txt"), "/none/text.txt"),
    "start": (("--config=tiny.py", "start.load_parameters_path=/none/run"), "/none/run"),
    "grow": (
        ("grow", "--config=tokenformer/tiny.py", "--from=/none/run"),
        "'/none/run', which does not exist",
    ),
    "memory": (
        ("--config=tiny.py", *LARGE),
        "[memory] training (weights, gradients and one moment alone) needs",
    ),
    "batch": (("--config=tiny.py", "train.batch_size=1048576", "train.seq_len=1024"), "set train."),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_run_that_cannot_be_leaves_nothing_behind(case: str, tmp_path: Path, tiny_text: Path) -> None:
    words, said = WRONG[case]
    text = () if case == "text" else (f"data.path={tiny_text}",)
    places = (f"data.cache_dir={tmp_path / 'deep' / 'cache'}", f"--workdir={tmp_path / 'runs' / 'run'}")
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words, *text, *places],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "data:" not in done.stderr  # no text was read
    assert list(tmp_path.iterdir()) == []


def needs(config: Config) -> int:
    return sum(MemoryPlan.of(resolved_model(config, expected_vocabulary(config)), config).bytes().values())


@pytest.mark.parametrize(
    ("words", "have", "mends"),
    [
        # The advice is half of the shards per micro-batch first, then recompute, then another batch size.
        (["train.batch_size=64"], 0.8, ["train.recompute=true", "stays the same"]),
        (["train.batch_size=64"], 0.5, ["train.micro_batch_size=", "stays the same"]),
        (
            ["train.batch_size=64", "train.micro_batch_size=8", "train.recompute=true", "eval.batch_size=1"],
            0.7,
            ["train.precision=bf16", "changes the training"],
        ),
        (
            ["train.batch_size=64", "train.precision=bf16", "train.micro_batch_size=8"],
            0.5,
            ["train.batch_size=", "changes the training"],
        ),
    ],
)
def test_the_mildest_settings_that_fit_are_named(words: list[str], have: float, mends: list[str]) -> None:
    config = mc.load_config("tiny.py", words)
    there = int(have * needs(config))
    text = advice(config, needs, there, 0)
    assert all(part in text for part in mends), text
    named = text.removeprefix("set ").partition(":")[0].split()
    assert needs(mc.load_config("tiny.py", [*words, *named])) <= there
    # A value of 0 means the whole batch and cannot be lowered.
    assert "lower train.micro_batch_size" not in text


@pytest.mark.parametrize(
    ("name", "have"), [("mixtral/mixtral80.py", 14 << 30), ("muddformer/2_8b.py", 12 << 30)]
)
def test_a_smaller_model_is_named_where_the_state_alone_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, name: str, have: int
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: (have, "free memory"))
    config = mc.load_config(name)
    with pytest.raises(UserError, match="this trains a smaller model") as caught:
        MemoryPlan.of(resolved_model(config, 32_000), config).require()
    named = str(caught.value).partition("; set ")[2].partition(":")[0].split()
    smaller = mc.load_config(name, named)
    MemoryPlan.of(resolved_model(smaller, 32_000), smaller).require()


def test_the_dry_run_of_the_benchmark_fits_into_30_gib() -> None:
    config = mc.load_config("mixtral/mixtral80.py")
    shape = resolved_model(config, 32_000)
    report = MemoryPlan.of(shape, config).bytes()
    assert sum(report.values()) < 30 << 30
    # The scratch memory includes the packed weights of one expert, not of all experts in a layer.
    assert report["arena"] < 2 << 30


def test_weights_do_not_shrink_with_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: (2 << 20, "free memory"))
    config = mc.load_config("tiny.py")
    with pytest.raises(
        UserError, match=r"free memory leaves 2\.000 MiB.*smaller model \(model\.d_model"
    ) as caught:
        MemoryPlan.of(resolved_model(config, 4096), config).require()
    assert "train." not in str(caught.value)


def test_an_unused_work_directory_goes_and_a_used_one_stays(tmp_path: Path) -> None:
    with FolderLock(RunFolder(tmp_path / "a" / "b")):
        assert (tmp_path / "a" / "b" / ".lock").exists()
    assert list(tmp_path.iterdir()) == []
    with FolderLock(RunFolder(tmp_path / "a")) as used:
        used.folder.config_file.write_text("{}")
    assert used.folder.config_file.exists()
    (tmp_path / "empty").mkdir()
    with FolderLock(RunFolder(tmp_path / "empty")):
        pass
    assert (tmp_path / "empty").is_dir()  # the user created it


def test_the_memory_advice_plans_each_model_that_is_too_deep_once() -> None:
    config = mc.load_config("tiny.py", ["model.n_layer=1024"])
    planned: list[int] = []

    def needs(changed: Config) -> int:
        planned.append(changed.model.n_layer)
        return changed.model.n_layer

    assert "model.n_layer=32:" in advice(config, needs, 32, 33)
    assert planned == [512, 256, 128, 64, 32, 32]


def test_two_thousand_blocks_are_planned_in_seconds() -> None:
    config = mc.load_config("tiny.py", ["model.n_layer=2000"])
    begin = time.process_time()
    assert MemoryPlan.of(resolved_model(config, 2048), config).bytes()["weights"] > 1 << 30
    assert time.process_time() - begin < 20  # about 3 s; comparing every node with every other took 50 s
