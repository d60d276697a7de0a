"""`diff` on runs in bf16, with rewinds, of several hosts, of adapters, with streamed data, and at a URL."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from diff_cases import WORDS, copied, diff, diff_json, trained
from launched import arguments_of, called, launched
from mudd_core.config import Config, load_config
from mudd_core.dist import Comm
from mudd_core.run.loop.trainer import Trainer
from rank_runs import on_ranks
from streaming_cases import write_texts
from tiny_run import CONFIG

Change = Callable[[Trainer], None]


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/base, which has checkpoints of steps 4, 8 and 12."""
    folder = tmp_path_factory.mktemp("diff")
    trained(folder, tiny_text, "base")
    return folder


def fitted(
    folder: Path, text: Path, name: str, *words: str, at: int = 0, change: Change | None = None
) -> None:
    """Train runs/<name> from Python. change: called once, after update `at`."""
    waiting = [change] if change else []

    def look(trainer: Trainer) -> None:
        if trainer.step_done == at and waiting:
            waiting.pop()(trainer)

    with Trainer(_config(text, *words), folder / "runs" / name) as trainer:
        trainer.fit(progress=False, callback=look)


def _config(text: Path, *words: str) -> Config:
    return load_config(
        CONFIG, [*WORDS, f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", *words]
    )


def spoil(trainer: Trainer) -> None:
    """Make a moment NaN, so that the next update is taken back."""
    moments: np.ndarray = trainer.engine.state_tensors(writable=True)["first_moment/embed"]  # type: ignore[attr-defined]
    moments[3, 1] = np.nan


def nudge(trainer: Trainer) -> None:
    """Change one weight."""
    model = trainer.engine.model  # type: ignore[attr-defined]
    weight = np.array(model.parameters["blocks.0.attn.q.w"])
    weight[0, 0] += 1e-3
    model.set_parameter("blocks.0.attn.q.w", weight)


def test_runs_in_bf16(folder: Path, tiny_text: Path) -> None:
    for name, words in (("half", ()), ("half_beta", ("optim.beta2=0.9",))):
        trained(folder, tiny_text, name, "train.precision=bf16", *words)
    text = diff(folder, "half", "half_beta", code=1)
    assert "in step 1, adamw (update): weight of embed" in text and "relative difference 0 " not in text
    text = diff(folder, "base", "half", code=1)
    assert "affects the training is train.precision ('fp32' in A, 'bf16' in B)." in text
    assert "the runs have other precisions A computes in fp32, B in bf16" in text
    for name in ("base", "half"):
        file = f"--to={name}.jsonl"
        assert called(folder, "diff", "--record", f"runs/{name}", "--step=2", file).returncode == 0
    text = diff(folder, "base.jsonl", "half.jsonl", code=1)
    assert "precision fp32 bf16" in text and "In step 2 A computes in fp32, and B in bf16." in text


def test_runs_with_other_bf16_instructions_are_compared_by_records(folder: Path, tiny_text: Path) -> None:
    trained(folder, tiny_text, "here", "train.precision=bf16")
    facts = copied(folder, "elsewhere", "here") / "run.json"
    text = facts.read_text()
    unit = "none" if '"amx_bf16"' in text or '"avx512_bf16"' in text else "amx_bf16"
    facts.write_text(text.replace('"bf16_unit": "', f'"bf16_unit": "{unit}", "was": "'))
    log = folder / "runs" / "elsewhere" / "metrics.jsonl"
    log.write_text(log.read_text().replace('"loss": 5', '"loss": 4'))
    shutil.rmtree(folder / "runs" / "elsewhere" / "checkpoints")
    done = called(folder, "diff", "runs/here", "runs/elsewhere")
    printed = " ".join(done.stdout.split())
    assert done.returncode == 1 and "a callback or a program" not in printed, done.stderr
    assert "step 1 is equal here, and B recorded others" in printed
    assert f"its bf16 matmuls used another unit ({unit}, now" in printed
    commands = [line for line in done.stdout.splitlines() if " diff " in line]
    assert [arguments_of(line)[1] for line in commands] == ["--record", "--record", "a.jsonl"]


def test_rewinds_are_a_setting_and_their_batches_the_data(folder: Path, tiny_text: Path) -> None:
    fitted(folder, tiny_text, "rewound", at=6, change=spoil)
    found = diff_json(folder, "base", "rewound", code=1)
    (setting,) = found["settings"]
    assert (setting["kind"], setting["b"], setting["affects_training"]) == ("rewinds", "6 to 4", True)
    node = found["replay"]["node"]
    assert (found["replay"]["step"], node["stage"], node["value"]) == (5, "data", "inputs")
    fitted(folder, tiny_text, "rewound_beta", "optim.beta2=0.9", at=6, change=spoil)
    assert "in step 1, adamw (update): weight of embed" in diff(folder, "rewound", "rewound_beta", code=1)


def test_weights_that_a_callback_changes_are_named_with_their_time(folder: Path, tiny_text: Path) -> None:
    for name, at in (("changed_six", 6), ("changed_eight", 8)):
        fitted(folder, tiny_text, name, at=at, change=nudge)
    text = diff(folder, "base", "changed_six", code=1)
    assert "first value that differs: in step 7, the weights of B before the step" in text
    assert "Its weights changed after the gradients of step 6 were computed, or earlier by too little" in text
    text = diff(folder, "base", "changed_eight", code=1)
    assert "first value that differs: in step 9, the weights of B before the step" in text
    assert "Its weights changed after the checkpoint of step 8 was saved, before step 9 started." in text
    assert "of 1 logged step have the same bits" in text


def test_gradients_that_several_hosts_round(folder: Path, tiny_text: Path) -> None:
    for name, words in (("hosts", ()), ("hosts_beta", ("optim.beta2=0.9",))):

        def work(comm: Comm, name: str = name, words: tuple[str, ...] = words) -> None:
            config = _config(tiny_text, "mesh.wire=bf16", "train.stop_at=2", *words)
            with Trainer(config, folder / "runs" / name, comm=comm) as trainer:
                trainer.fit(progress=False)

        on_ranks(work, 2, 1)
    done = called(folder, "diff", "runs/base", "runs/hosts")
    text = " ".join(done.stdout.split())
    assert done.returncode == 1 and done.stderr == ""
    assert "affects the training is mesh.wire ('fp32' in A, 'bf16' in B)." in text
    assert "The steps of B have other bits here than in the run: mesh.wire=bf16 rounds on each host" in text
    assert "do not depend on the ranks" not in text and "a callback" not in text
    assert "in step 1, adamw (update): weight of embed" in diff(folder, "hosts", "hosts_beta", code=1)


def test_adapters_of_two_bases_and_of_one(folder: Path, tiny_text: Path) -> None:
    trained(folder, tiny_text, "seed", "train.seed=1")
    lora = ("tune.method=lora", "lora.rank=4", "lora.alpha=8")
    for name, base, words in (
        ("on_base", "base", ()),
        ("on_seed", "seed", ()),
        ("on_copy", "copy", ("optim.beta2=0.9",)),
    ):
        if base == "copy":
            copied(folder, "copy")
        start = f"start.load_parameters_path={folder / 'runs' / base}"
        trained(folder, tiny_text, name, *lora, start, *words)
    text = diff(folder, "on_base", "on_seed", code=1)
    assert "the runs have other bases Their frozen weights are" in text
    assert "The first value that differs: in step 1, the weight of embed before the step" in text
    kinds = {one["name"]: one["kind"] for one in diff_json(folder, "on_base", "on_seed", code=1)["settings"]}
    assert kinds == {"start.load_parameters_path": "config", "base_sha256": "base"}
    found = {
        one["name"]: one["affects_training"]
        for one in diff_json(folder, "on_base", "on_copy", code=1)["settings"]
    }
    assert found == {"optim.beta2": True, "start.load_parameters_path": False}


def test_streamed_data(folder: Path, tiny_text: Path, tmp_path: Path) -> None:
    write_texts(tmp_path, (90, 140))
    write_texts(tmp_path / "eval", (30,), 9)
    words = (
        *(f"data.path={tmp_path}/*.jsonl", "data.pipeline=pack", "train.seq_len=16", "data.buffer=5"),
        *(f"data.cache_dir={tmp_path / 'cache'}", "train.batch_size=2", "train.logical_shards=2"),
    )
    for name, more in (
        ("cached", ("data.cache=full",)),
        ("streamed", ("data.cache=stream",)),
        ("streamed_beta", ("data.cache=stream", "optim.beta2=0.9")),
    ):
        trained(folder, tiny_text, name, *words, *more)
    assert "data.cache * config" in diff(folder, "cached", "streamed", code=0)
    text = diff(folder, "streamed", "streamed_beta", code=1)
    assert "in step 1, adamw (update): weight of embed" in text


def test_a_run_at_a_url_and_its_checkpoint(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    shutil.copytree(folder / "runs" / "base", tmp_path / "bucket" / "run")
    url = f"file://{tmp_path}/bucket/run"
    assert "equal through step 12" in diff(folder, "base", url, code=0)
    assert "equal through step 8" in diff(folder, "base", f"{url}/checkpoints/step-8", code=0)
    text = diff(folder, "base", f"{url}/checkpoints/step-9", code=2)
    assert f"[diff] {url}/checkpoints/step-9: expected a checkpoint that exists, got step 9" in text
    assert "holds no run" in diff(folder, "base", f"{url}s", code=2)


def test_a_step_before_the_first_checkpoint_has_a_cost(folder: Path) -> None:
    run = copied(folder, "slow")
    for step in (4, 8):
        shutil.rmtree(run / "checkpoints" / f"step-{step}")
    log = run / "metrics.jsonl"
    log.write_text(log.read_text().replace('"tokens_per_second": ', '"tokens_per_second": 0.000001, "was": '))
    words = ("--record=runs/slow", "--step=3", "--to=slow.jsonl")
    text = diff(folder, *words, code=2)
    assert (
        "expected a step after the first checkpoint of runs/slow, got 3; to replay it takes 3 updates" in text
    )
    assert called(folder, "diff", *words, "--train").returncode == 0
    assert "got absent/slow.jsonl" in diff(folder, *words[:2], "--to=absent/slow.jsonl", code=2)


def test_a_missing_checkpoint_is_no_run_to_compare(folder: Path) -> None:
    done = launched(folder, "compare", "runs/base/checkpoints/step-99", "runs/slow")
    assert done.returncode == 2 and done.stdout == ""
    assert (
        "[compare] runs/base/checkpoints/step-99: expected a checkpoint that exists, got step 99"
        in done.stderr
    )
