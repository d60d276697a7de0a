"""tune --loss=dpo|orpo on pairs of answers: learning, resume, ranks, the kept reference, and unusable pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from chat_cases import write_jsonl
from launched import launched
from mudd_core.base.errors import UserError
from mudd_core.config import check_config, load_config
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.rows import RowShape
from tune_folders import write_given

FIELDS = {"train_threads": 1, "train_seq_len": 64, "optim_lr": 0.003}
PAIRS = [
    *("data.pipeline=chat", "data.tokenizer=base", "loss.kind=dpo", "start.load_parameters_path=base"),
    *("train.batch_size=4", "train.logical_shards=2", "train.seq_len=64", "data.cache_dir=cache"),
]
CLOSE = 1e-6  # the model is its own reference, so the margin is zero but for float32
_GOOD, _BAD = "the cat sat", "end of the mat"


def pairs(count: int) -> list[dict[str, object]]:
    """Return records whose chosen answers all start alike, and the rejected ones too."""
    return [
        {"prompt": f"say {n}", "chosen": f"{_GOOD} {n}", "rejected": f"{_BAD} {n % 7}"} for n in range(count)
    ]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama, a chat template and 200 pairs."""
    folder = write_given(tmp_path_factory.mktemp("pairs"), 2)
    write_jsonl(folder / "pairs.jsonl", pairs(200))
    return folder


@pytest.fixture(autouse=True)
def _inside(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(given)


@pytest.mark.parametrize("loss", ["dpo", "orpo"])
def test_pairs_raise_the_margin_of_held_out_pairs(loss: str, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = mc.tune("base", "pairs.jsonl", f"runs/{loss}", loss=loss, **FIELDS)  # type: ignore[arg-type]
    first, last = tuned.held_out[0], tuned.held_out[-1]
    assert first.margin is not None and last.margin is not None
    assert last.loss < first.loss and last.margin > first.margin
    assert (
        last.accuracy == 1.0
        and len({one.prompt for one in tuned.answers}) == len(tuned.answers)
        and "held-out pairs: loss" in repr(tuned)
    )
    if loss == "dpo":  # the adapters start at zero, so the model is its own reference
        assert first.loss == np.log(2) and first.margin == 0 and first.accuracy == 0


def test_a_resume_and_micro_batches_have_the_bits_of_one_run(given: Path) -> None:
    fields = {**FIELDS, "train_batch_size": 8, "train_logical_shards": 4, "train_steps": 6, "progress": False}
    whole = mc.tune("base", "pairs.jsonl", "runs/whole", loss="dpo", **fields)  # type: ignore[arg-type]
    kept = Path("runs/whole/reference.json").read_bytes()
    mc.tune("base", "pairs.jsonl", "runs/parts", loss="dpo", train_stop_at=3, **fields)  # type: ignore[arg-type]
    assert Path("runs/parts/reference.json").read_bytes() == kept
    Path("runs/parts/reference.json").unlink()  # computed again, with the same bits
    again = mc.tune(
        "base",
        "pairs.jsonl",
        "runs/parts",
        loss="dpo",
        train_micro_batch_size=2,
        **fields,  # type: ignore[arg-type]
    )
    assert again.summary.final_hash == whole.summary.final_hash and again.held_out == whole.held_out
    assert Path("runs/parts/reference.json").read_bytes() == kept
    rows = [json.loads(line) for line in Path("runs/whole/metrics.jsonl").read_text().splitlines()]
    assert any("margin" in row for row in rows) and any("val_margin" in row for row in rows)
    assert not any("val_ppl" in row for row in rows)  # the loss of a pair is no log-probability of text
    done = launched(given, "validate", "--workdir=runs/whole")
    last = whole.held_out[-1]
    assert done.returncode == 0 and f"validation loss {last.loss:.6f}" in done.stdout, done.stderr
    assert f"margin {last.margin:.6f}" in done.stdout


def test_the_reference_has_the_adapters_from_which_the_run_starts() -> None:
    fields = {**FIELDS, "train_steps": 3, "progress": False}
    mc.tune("base", "chat.jsonl", "runs/first", data_eval_path="chat.jsonl", **fields)  # type: ignore[arg-type]
    mc.export("runs/first", "first", "adapter")
    tuned = mc.tune("base", "pairs.jsonl", "runs/more", adapter="first", loss="dpo", **fields)  # type: ignore[arg-type]
    first = tuned.held_out[0]
    assert first.loss == np.log(2) and first.margin == 0 and tuned.held_out[-1].margin != 0
    kept, other = (json.loads(Path(f"runs/{run}/reference.json").read_text()) for run in ("more", "dpo"))
    assert len(kept["adapters_sha256"]) == 64 and "adapters_sha256" not in other
    assert kept["log_probs"] != other["log_probs"] and len(kept["log_probs"]) == len(other["log_probs"])


def test_a_teacher_for_pairs_is_refused_before_any_work() -> None:
    words = ["--base=base", "--data=pairs.jsonl", "--workdir=runs/taught", "--loss=dpo"]
    done = launched(Path.cwd(), "tune", *words, "--teacher=teacher.h5")
    assert done.returncode == 2 and not Path("runs/taught").exists()
    assert "loss.teacher: expected no teacher for loss.kind=dpo, got teacher.h5; leave one of" in done.stderr
    done = launched(Path.cwd(), "tune", *words[:3], "--teacher=teacher.h5")
    assert done.returncode == 2 and "teacher.h5, which does not exist" in done.stderr
    assert "importing" not in done.stdout and not Path("runs/taught/base").exists()


def test_full_fine_tuning_and_bf16(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {**FIELDS, "optim_lr": 1e-3, "train_steps": 8, "tune_method": "full", "train_precision": "bf16"}
    tuned = mc.tune("base", "pairs.jsonl", "runs/full", loss="dpo", **fields)  # type: ignore[arg-type]
    assert tuned.held_out[0].loss == pytest.approx(np.log(2), abs=CLOSE)
    assert tuned.held_out[-1].loss < tuned.held_out[0].loss
    assert "computed" not in capsys.readouterr().out


def test_a_kept_reference_that_is_unusable_is_computed_again(capsys: pytest.CaptureFixture[str]) -> None:
    fields = {**FIELDS, "train_steps": 5, "train_batch_size": 4, "train_logical_shards": 2}
    file = Path("runs/other/reference.json")

    def note_of(stop: int) -> str:
        """Train to a step; return the note about the reference."""
        mc.tune("base", "pairs.jsonl", "runs/other", loss="dpo", train_stop_at=stop, **fields)  # type: ignore[arg-type]
        lines = "".join(capsys.readouterr()).splitlines()
        return next((one for one in lines if f"computed {file.resolve()} again" in one), "")

    assert note_of(2) == ""
    kept = json.loads(file.read_text())
    file.write_text("{")
    assert "again, because it is damaged" in note_of(3)
    file.unlink()
    assert "again, because it was missing" in note_of(4)
    file.write_text(json.dumps({**kept, "base_sha256": "0" * 64, "log_probs": [0.0]}))
    assert "again, because it has another base_sha256" in note_of(5)
    assert json.loads(file.read_text()) == kept
    values = kept["log_probs"]
    file.write_text(json.dumps({**kept, "log_probs": ["x", *values[1:]]}))
    assert "again, because it is damaged" in note_of(5) and json.loads(file.read_text()) == kept


MESSAGE = {"role": "user", "content": "say it"}


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def examples_of(name: str, record: dict[str, object]) -> list[list[int]]:
    """Return the ids of both answers of a record, those with a loss as their complement."""
    write_jsonl(Path(f"{name}.jsonl"), [record])
    data = prepare(load_config("tiny.py", [*PAIRS, f"data.path={name}.jsonl"]))
    assert isinstance(data, ChatData)
    found = [data.rows("train", RowShape(64, 2, 0)).examples(at)[0] for at in range(2)]
    return [np.where(one.counts, ~one.ids, one.ids).tolist() for one in found]


def test_strings_and_messages_with_and_without_a_prompt_are_the_same_pair() -> None:
    want = examples_of("strings", {"prompt": "say it", "chosen": _GOOD, "rejected": _BAD})
    assert want[0] != want[1] and all(min(one) < 0 for one in want)
    for name, record in {
        "explicit": {"prompt": [MESSAGE], "chosen": said(_GOOD), "rejected": said(_BAD)},
        "implicit": {"chosen": [MESSAGE, *said(_GOOD)], "rejected": [MESSAGE, *said(_BAD)]},
        "repeated": {
            "prompt": "say it",
            "chosen": [MESSAGE, *said(_GOOD)],
            "rejected": [MESSAGE, *said(_BAD)],
        },
    }.items():
        assert examples_of(name, record) == want


def test_earlier_answers_of_the_prompt_have_no_loss() -> None:
    talk = [MESSAGE, *said("mat"), MESSAGE]
    [chosen, _] = examples_of("talk", {"prompt": talk, "chosen": said(_GOOD), "rejected": said(_BAD)})
    [alone, _] = examples_of("alone", {"prompt": [MESSAGE], "chosen": said(_GOOD), "rejected": said(_BAD)})
    assert [one for one in chosen if one < 0] == [one for one in alone if one < 0]


@pytest.mark.parametrize(
    "record, says",
    [
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "1 with equal answers"),
        ({"prompt": "a", "chosen": "b"}, "rejected is missing"),
        ({"messages": [MESSAGE]}, "prompt and chosen and rejected are missing"),
        ({"prompt": "a", "chosen": "", "rejected": "b"}, "an empty answer"),
        ({"chosen": said("a"), "rejected": said("b")}, "the same first messages"),
        ({"prompt": "a", "chosen": 3, "rejected": "b"}, "completion: expected"),
    ],
)
def test_unusable_pairs_are_named(record: dict[str, object], says: str) -> None:
    write_jsonl(Path("bad.jsonl"), [*pairs(8), record])
    with pytest.raises(UserError, match="cannot be trained on") as raised:
        mc.tune("base", "bad.jsonl", "runs/bad", loss="dpo", progress=False, **FIELDS)  # type: ignore[arg-type]
    assert says in str(raised.value) and "data.bad_examples=drop" in str(raised.value)


def test_dropped_pairs_and_long_ones_are_left_out_whole(capsys: pytest.CaptureFixture[str]) -> None:
    long = {"prompt": "a", "chosen": "b", "rejected": "the cat " * 80}
    write_jsonl(Path("some.jsonl"), [*pairs(12), {"prompt": "a", "chosen": "b", "rejected": "b"}, long])
    data = prepare(load_config("tiny.py", [*PAIRS, "data.path=some.jsonl", "data.bad_examples=drop"]))
    assert sum(data.documents) == 12
    text = "\n".join(data.describe())
    assert "1 with equal answers" in text and "1 training" in text


@pytest.mark.parametrize(
    "words, says",
    [
        (["train.batch_size=6", "train.logical_shards=4"], "whole pairs in each of 4 logical shards"),
        (["train.batch_size=7"], "got 7 sequences; set an even number"),
        (["loss.beta=0"], "loss.beta: expected more than 0 for loss.kind=dpo, got 0"),
        (["loss.kind=tokens", "loss.nll=answer"], "loss.nll: expected all for loss.kind=tokens"),
        (["eval.batch_size=3"], "eval.batch_size: expected whole pairs"),
        (["loss.normalize=all_slots"], "loss.normalize: expected valid"),
        (["data.loss_on=all"], "data.loss_on: expected assistant or last"),
        (["loss.kind=orpo", "loss.label_smoothing=0.1"], "loss.label_smoothing: expected 0"),
        (["start.load_parameters_path="], "expected the reference of loss.kind=dpo"),
        (["loss.teacher=teacher.h5"], "loss.teacher: expected no teacher for loss.kind=dpo, got teacher.h5"),
    ],
)
def test_settings_that_split_pairs_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(UserError) as raised:
        check_config(load_config("tiny.py", [*PAIRS, "data.path=pairs.jsonl", *words]))
    assert says in str(raised.value)


def test_an_unknown_loss_is_refused(given: Path) -> None:
    done = launched(given, "tune", "--base=base", "--data=pairs.jsonl", "--workdir=runs/x", "--loss=ppo")
    assert done.returncode == 2 and "[tune] --loss: expected dpo, orpo" in done.stderr


def test_two_runs_on_pairs_differ_in_a_value_of_their_loss(given: Path) -> None:
    fields = {**FIELDS, "train_steps": 2, "train_log_every": 1, "progress": False}
    for name, beta in (("low", 0.1), ("high", 0.3)):
        mc.tune("base", "pairs.jsonl", f"runs/{name}", loss="dpo", loss_beta=beta, **fields)  # type: ignore[arg-type]
    done = launched(given, "diff", "runs/low", "runs/high")
    text = " ".join(done.stdout.split())
    assert done.returncode == 1, done.stderr
    assert "affects the training is loss.beta (0.1 in A, 0.3 in B)." in text
    assert "in step 1, preference_loss (backward): gradient of input 0" in text
