"""With loss.normalize=micro_mean the micro-batch size affects training: it is stored, fixed, and never advised."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, config_hash, mesh_of
from mudd_core.config.fields import walk
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build.memory_advice import advice
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.loop.trainer import Trainer

SIZE = "train.micro_batch_size"
MEAN = "loss.normalize=micro_mean"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write documents of different lengths, so that micro-batches have different numbers of targets."""
    file, rng = tmp_path_factory.mktemp("rows") / "text.jsonl", random.Random(5)
    lines = ("".join(rng.choice("abcdefg ") for _ in range(rng.randint(1, 60))) for _ in range(1700))
    file.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return file


def settings(texts: Path, *words: str) -> list[str]:
    return [
        "data.pipeline=rows",
        f"data.path={texts}",
        f"data.cache_dir={texts.parent}/cache",
        "data.tokenizer=bytes",
        "model.d_model=16",
        "model.n_layer=1",
        "model.n_head=2",
        "model.d_ff=32",
        "train.steps=4",
        "train.seq_len=16",
        "train.save_every=2",
        "train.eval_every=0",
        "eval.max_batches=1",
        "optim.warmup_steps=2",
        MEAN,
        *words,
    ]


def trained(texts: Path, workdir: Path, *words: str) -> str:
    with Trainer(mc.load_config("tiny.py", settings(texts, *words)), workdir) as trainer:
        return str(trainer.fit(progress=False).final_hash)


def saved(workdir: Path) -> int:
    size = json.loads((workdir / "config.json").read_text())["train"]["micro_batch_size"]
    assert isinstance(size, int)
    return size


def test_the_size_in_effect_is_stored_and_kept(texts: Path, tmp_path: Path) -> None:
    whole = trained(texts, tmp_path / "whole")
    quarter = trained(texts, tmp_path / "quarter", f"{SIZE}=3")  # gives two shards of one sequence each
    assert (saved(tmp_path / "whole"), saved(tmp_path / "quarter")) == (8, 2)
    assert whole != quarter
    stopped = tmp_path / "stopped"
    trained(texts, stopped, f"{SIZE}=2", "train.stop_at=2")
    for size, asked in ((4, f"{SIZE}=4"), (8, f"{SIZE}=0")):
        with pytest.raises(UserError, match=rf"{SIZE}: saved 2, asked {size}"):
            trained(texts, stopped, asked, "train.stop_at=0")
    assert trained(texts, stopped, f"{SIZE}=3") == quarter


def test_a_run_of_an_earlier_version_keeps_its_saved_size(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quarter = trained(texts, tmp_path / "quarter", f"{SIZE}=2")
    run = tmp_path / "run"
    trained(texts, run, f"{SIZE}=2", "train.stop_at=2")
    facts = json.loads((run / "run.json").read_text())
    del facts["bound_fields"]
    (run / "run.json").write_text(json.dumps(facts))
    capsys.readouterr()
    for words in (("train.stop_at=3",), (f"{SIZE}=4",)):  # earlier versions accepted both
        last = trained(texts, run, *words)
        assert f"note: {SIZE} stays 2: with loss.normalize=micro_mean it is part" in capsys.readouterr().err
    assert (last, saved(run)) == (quarter, 2)
    config = json.loads((run / "config.json").read_text())
    config["train"]["micro_batch_size"] = 0  # earlier versions store the whole batch like this
    (run / "config.json").write_text(json.dumps(config))
    trained(texts, run)
    assert saved(run) == 0 and not capsys.readouterr().err


def test_a_command_that_reads_the_run_keeps_it_too(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    trained(texts, run, f"{SIZE}=2", "train.steps=2")
    assert main(["validate", f"--workdir={run}", f"{SIZE}=1"]) == 2
    assert f"{SIZE}: saved 2, asked 1" in capsys.readouterr().err
    assert main(["validate", f"--workdir={run}", f"{SIZE}=3"]) == 0


def test_other_losses_leave_it_free() -> None:
    for loss in ("valid", "all_slots"):
        plain = mc.load_config("tiny.py", [f"loss.normalize={loss}"])
        other = plain.replace(SIZE, 2)
        assert config_hash(plain) == config_hash(other)
        assert next(info for info in walk(other) if info.path == SIZE).free_on_resume
    mean = mc.load_config("tiny.py", [MEAN])
    assert not next(info for info in walk(mean) if info.path == SIZE).free_on_resume
    hashes = [config_hash(mean.replace(SIZE, size)) for size in (0, 8, 2, 3)]
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]


@pytest.mark.parametrize(
    ("batch", "shards", "size"),
    [(8, 8, 0), (8, 8, 3), (8, 4, 1), (64, 16, 12), (9, 4, 0), (1, 8, 5), (12, 4, 7)],
)
def test_the_size_in_effect_is_that_of_the_graph_runs(batch: int, shards: int, size: int) -> None:
    words = [f"train.batch_size={batch}", f"train.logical_shards={shards}", f"{SIZE}={size}"]
    train = mc.load_config("tiny.py", words).train
    runs, _ = cut_batch(batch, train.shard_count(), size)
    assert train.sequences_per_run() * runs == batch


def test_the_whole_batch_in_effect_goes_with_any_world() -> None:
    words = [MEAN, "train.batch_size=9", "mesh.any_world=true", f"{SIZE}=9"]
    assert mesh_of(mc.load_config("tiny.py", words), 3).world == 3


def needs(config: Config) -> int:
    return sum(MemoryPlan.of(resolved_model(config, expected_vocabulary(config)), config).bytes().values())


def test_it_is_no_cure_for_memory() -> None:
    valid = mc.load_config("tiny.py", ["train.batch_size=64"])
    mean = valid.replace("loss.normalize", "micro_mean")
    for part in (0.9, 0.7, 0.5, 0.3, 0.1):
        text = advice(mean, needs, int(part * needs(mean)), 0)
        assert SIZE not in text and text.startswith("set ")
    there = needs(valid) // 2
    assert SIZE in advice(valid, needs, there, 0)
    smaller_model = advice(mc.load_config("small.py", [MEAN]), needs, there, there + 1)
    assert "model.n_layer=" in smaller_model and SIZE not in smaller_model
