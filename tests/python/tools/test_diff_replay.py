"""`diff` replays the first step that differs in both runs and names the planted cause."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from diff_cases import STEPS, WORDS, change_row, copied, diff, diff_json, flip_bit, trained
from launched import arguments_of, called, launched
from tiny_run import TinyRun

PLANTED = {
    "seed": ("train.seed=1", (1, "weight", "state", "weight")),
    "beta": ("optim.beta2=0.9", (1, "adamw", "update", "weight")),
    "decay": ("optim.weight_decay=0.2", (1, "adamw", "update", "weight")),
    "clip": ("optim.clip=0.5", (1, "clip factor", "step", "clip factor")),
    "rate": ("optim.lr=2e-3", (1, "rate", "step", "rate")),
    "lion": ("optim.name=lion", (1, "adamw", "update", "weight")),
    "eps": ("model.norm_eps=1e-4", (1, "rms_norm", "forward", "output 0")),
    "base_of_rope": ("model.rope_base=5000", (1, "rope", "forward", "output 0")),
    "smooth": ("loss.label_smoothing=0.1", (1, "rms_norm", "backward", "gradient of input 0")),
}


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs/base, which has checkpoints of steps 4, 8 and 12, and a run for each planted field."""
    folder = tmp_path_factory.mktemp("diff")
    trained(folder, tiny_text, "base")
    for name, (word, _) in PLANTED.items():
        trained(folder, tiny_text, name, word)
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> Path:
    """Return the folder with base.jsonl and beta.jsonl, records of step 2."""
    for name in ("base", "beta"):
        done = launched(folder, "diff", "--record", f"runs/{name}", "--step=2", f"--to={name}.jsonl")
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "record" in done.stdout and "step 2, " in done.stdout
    return folder


def node_of(folder: Path, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the replay and the node of runs/base and another run."""
    made = diff_json(folder, "base", name, code=1)["replay"]
    return made, made["node"]


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_value_is_that_of_the_field(name: str, folder: Path) -> None:
    _, (step, op, stage, value) = PLANTED[name]
    made, node = node_of(folder, name)
    found = (made["step"], node["op"], node["stage"], node["value"])
    assert found == (step, op, stage, value)


def test_ops_that_only_one_run_has_are_named(folder: Path) -> None:
    text = diff(folder, "base", "smooth", code=1)
    assert (
        "first value that differs: in step 1, cross_entropy (backward): output 0 in A, regularized_loss (backward): "
        "output 0 in B" in text
    )
    assert "op adamw in A, lion in B" in diff(folder, "base", "lion", code=1)


def test_the_size_of_a_difference_is_printed(folder: Path) -> None:
    text = diff(folder, "base", "eps", code=1)
    node = diff_json(folder, "base", "eps", code=1)["replay"]["node"]
    assert f"op {node['op']} place {node['place']} pass forward type float32 [8, 64, 32] elements " in text
    assert f"{node['elements']:,} of 16,384 differ" in text and "units of the last place" in text
    assert "All values before this one are equal, so the inputs of its op are equal." in text
    assert "affects the training is model.norm_eps" in text


def test_a_changed_row_is_the_data(folder: Path, tmp_path: Path, tiny_text: Path) -> None:
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    change_row(folder, text, 6, "y")
    trained(folder, text, "row", f"data.cache_dir={tmp_path / 'cache'}")
    made, node = node_of(folder, "row")
    assert (made["start"], made["step"], node["stage"], node["value"]) == (4, 6, "data", "inputs")
    assert made["rows"] == [0] and node["elements"] == 1 and node["ulps"] == abs(node["a"] - node["b"])
    printed = diff(folder, "base", "row", code=1)
    assert "The batch has other ids in sequence 0 (from 0)." in printed
    assert "from the equal checkpoints of step 4" in printed


def test_a_flipped_bit_of_a_checkpoint_is_found_in_the_file(folder: Path) -> None:
    flip_bit(copied(folder, "flipped"), 8, "blocks.0.attn.q.w")
    text = diff(folder, "base", "flipped", code=1)
    assert "steps 5 to 8 are equal here, and B recorded others" in text
    assert (
        "This machine and version reproduce A: loss and gradient norm of 4 logged steps have the same bits."
        in text
    )
    assert (
        "B was made otherwise: its checkpoint of step 8 has other values in blocks.0.attn.q.w: 1 of 1,024 elements, "
        "the first at [0, 0], by at most 1 unit of the last place." in text
    )
    assert text.count("a callback or a program that changed weights") == text.count("cause") == 1
    assert "a resume with another version" in text and "another level" not in text
    lines = called(folder, "diff", "runs/base", "runs/flipped").stdout.splitlines()
    train, compare = (line for line in lines if "-again" in line)
    assert called(folder, *arguments_of(train)).returncode == 75
    done = called(folder, *arguments_of(compare))
    assert done.returncode == 0 and "equal through step 8" in done.stdout


def test_a_run_that_continued_from_a_flipped_bit_is_named(folder: Path, tiny_text: Path) -> None:
    run = TinyRun(folder / "runs" / "continued", tiny_text, (*WORDS, "train.stop_at=8"))
    assert run.finish_here() == 75
    flip_bit(run.workdir, 8, "blocks.0.attn.q.w")
    run.words = WORDS
    run.trained()
    shutil.rmtree(run.checkpoints / "step-8")
    text = diff(folder, "continued", "base", code=1)
    either = r"(?:steps 5 to|differs: in step) (\d+)(?: are equal here, and A|, the weights of A)"
    found = re.search(either, text)
    assert found is not None and 9 <= int(found[1]) <= 11, text
    assert f"A was made otherwise: its log has other values from step {found[1]}." in text


def test_a_changed_log_is_not_what_the_run_computes(folder: Path) -> None:
    run = copied(folder, "edited")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    next(row for row in rows if row["step"] == 7 and "loss" in row)["loss"] *= 1 + 2.0**-52
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = diff_json(folder, "base", "edited", code=1)["replay"]
    assert made["node"] is None and made["start"] == 4 and made["step"] == 7
    assert [one["equal"] for one in made["reproduced"]] == [True, False]
    assert made["reproduced"][1]["step"] == 7


def test_nothing_in_the_folders_changes(folder: Path) -> None:
    def files() -> dict[Path, tuple[int, bytes]]:
        found = (path for path in (folder / "runs").rglob("*") if path.is_file())
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in found}

    before = files()
    diff(folder, "base", "beta", code=1)
    assert files() == before


def test_without_a_common_checkpoint_the_cost_is_named_and_train_derives(folder: Path) -> None:
    slow = copied(folder, "slow", "beta")
    shutil.rmtree(slow / "checkpoints")
    rows = [json.loads(line) for line in (slow / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        if "tokens_per_second" in row:
            row["tokens_per_second"] = 1.0  # 512 seconds a step
    (slow / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = diff(folder, "base", "slow", code=2)
    assert (
        "[diff] step 2: expected a checkpoint before it that is equal in both runs, got none: A has checkpoints"
        in text
    )
    assert "B has no checkpoint. To replay this step takes 4 updates, about 17m" in text
    assert "launch.py diff runs/base runs/slow --train" in text
    done = called(folder, "diff", "runs/base", "runs/slow", "--train")
    assert done.returncode == 1 and "adamw (update): weight of embed" in done.stdout
    assert "note: replaying steps 1 to 2 of both runs: 4 updates, about 17m" in done.stderr


def test_data_that_are_gone_end_with_code_2_after_the_settings(
    folder: Path, tmp_path: Path, tiny_text: Path
) -> None:
    text = tmp_path / "text"
    shutil.copytree(tiny_text, text)
    trained(folder, text, "gone", f"data.cache_dir={tmp_path / 'cache'}", "optim.beta1=0.8")
    shutil.rmtree(text)
    shutil.rmtree(tmp_path / "cache")
    done = called(folder, "diff", "runs/base", "runs/gone")
    assert done.returncode == 2
    assert "optim.beta1" in done.stdout and "first step that differs: 3" in done.stdout
    assert "error: [diff] B: step 1 of runs/gone cannot be replayed: " in done.stderr


def test_other_shapes_are_named(folder: Path, tiny_text: Path) -> None:
    trained(folder, tiny_text, "wide", "model.d_ff=64", "train.steps=2")
    trained(folder, tiny_text, "batch", "train.batch_size=4", "train.steps=2")
    assert "the weight blocks.0.ffn.gate.w has the shape [32, 128] in A and [32, 64] in B." in diff(
        folder, "base", "wide", code=1
    )
    for name in ("base", "wide"):
        facts = copied(folder, f"on_{name}", name) / "run.json"
        facts.write_text(json.dumps({**json.loads(facts.read_text()), "base_sha256": name}))
    text = diff(folder, "on_base", "on_wide", code=1)
    assert "from other bases: base_sha256 is base in A and wide in B." in text and "has the shape" not in text
    assert "the batches have 8 sequences in A and 4 in B." in diff(folder, "base", "batch", code=1)


def test_a_record_is_compared_with_a_record_and_with_a_run(records: Path) -> None:
    folder = records
    assert (folder / "base.jsonl").stat().st_size < 100_000
    done = launched(folder, "diff", "runs/base", "base.jsonl")
    assert done.returncode == 0 and "equal at step 2\n  All " in done.stdout
    done = launched(folder, "diff", "base.jsonl", "beta.jsonl")
    assert done.returncode == 1 and "hash of the config" in done.stdout
    assert "first value that differs: in step 2, the weight of embed before the step" in done.stdout
    found = json.loads(launched(folder, "diff", "beta.jsonl", "runs/base", "--json").stdout)
    assert found["node"] == {"op": "weight", "stage": "state", "place": "embed", "value": "weight"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--record=runs/base", "--step=2"),
            "launch.py diff --record runs/base --step=2 --to=base-step-2.jsonl",
        ),
        (
            ("--record=runs/base", "--step=2", "--to=base.jsonl"),
            "[diff] --to: expected a new file, got base.jsonl",
        ),
        (("--record=runs/base/checkpoints/step-5", "--step=2", "--to=x"), "the run has steps 4, 8, 12"),
        (("base.jsonl", "none.jsonl"), "[diff] none.jsonl: expected a run or a record, got a path that does"),
        (("--record=runs/base", "--to=x"), "--step is missing"),
        (
            ("--record=runs/base", "--step=13", "--to=x"),
            f"expected a step of runs/base, 1 to {STEPS}, got 13",
        ),
        (("--record=runs/base", "--step=0", "--to=x"), "--step: "),
        (("--record=absent", "--step=1", "--to=x"), "got a path that does not exist"),
        (("runs/base", "runs/beta", "--step=2"), "--step belongs to --record=RUN"),
        (("runs/base", "later.jsonl"), "another version wrote it"),
        (("runs/base", "runs/base/config.json"), "expected a record of diff --record"),
        (("base.jsonl", "third.jsonl"), "[diff] B: expected a record of step 2, as A is; got one of step 3"),
    ],
)
def test_wrong_records_end_with_code_2(records: Path, words: tuple[str, ...], text: str) -> None:
    folder = records
    first, *rest = (folder / "base.jsonl").read_text().splitlines()
    (folder / "later.jsonl").write_text("\n".join([json.dumps({**json.loads(first), "format": 99}), *rest]))
    (folder / "third.jsonl").write_text("\n".join([json.dumps({**json.loads(first), "step": 3}), *rest, ""]))
    assert text in diff(folder, *words, code=2)
