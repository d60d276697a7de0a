"""mc.tune: the run, choices and answers of the command tune, and wrong arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import mudd_core as mc
from launched import launched
from tune_folders import write_given

FIELDS = {"train_threads": 1, "train_seq_len": 64, "train_epochs": 1, "optim_lr": 0.003}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama, a chat template and 40 conversations."""
    return write_given(tmp_path_factory.mktemp("tune"), 40)


@pytest.fixture(autouse=True)
def _inside(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(given)


def test_it_trains_the_run_of_the_command(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"{name.replace('_', '.', 1)}={value}" for name, value in FIELDS.items()]
    done = launched(given, "tune", "--base=base", "--data=chat.jsonl", "--workdir=runs/typed", *words)
    assert done.returncode == 0, done.stderr
    tuned = mc.tune("base", Path("chat.jsonl"), "runs/mine", **FIELDS)  # type: ignore[arg-type]
    summary = json.loads((given / "runs" / "typed" / "summary.json").read_text())
    assert tuned.summary.final_hash == summary["final_hash"]
    printed = capsys.readouterr().out
    for line in tuned.choices:
        assert line in done.stdout and line in printed
    assert "optim.lr=0.003" in printed and len(tuned.losses) == 2
    text = repr(tuned)
    assert text.startswith("Tuned('runs/mine', step ") and text.partition("\n")[2] in done.stdout
    assert not tuned.of_training and "held out" not in text
    assert tuned._repr_html_().count("<tr>") == 1 + len(tuned.answers) == 4
    assert tuned.run.generate("the cat", max_tokens=2) is not None
    again = mc.tune("base", "chat.jsonl", "runs/mine", progress=False, **FIELDS)  # type: ignore[arg-type]
    assert again.summary.final_hash == tuned.summary.final_hash and again.answers == tuned.answers
    assert capsys.readouterr().out == ""
    adapter = mc.export(tuned.run, "adapter", "adapter")
    assert adapter.system == "peft" and (given / "adapter" / "adapter_config.json").is_file()
    more = mc.tune("base", "chat.jsonl", "runs/more", adapter="adapter", progress=False, train_steps=1)
    assert any("lora.rank=16" in line and "of the adapter adapter" in line for line in more.choices)


@pytest.mark.parametrize(
    "arguments, fields, kind, says",
    [
        ((3, "chat.jsonl", "runs/x"), {}, TypeError, "[tune] base: expected a string or a path, got 3"),
        (("base", ["a"], "runs/x"), {}, TypeError, "[tune] data: expected a string or a path, got ['a']"),
        (
            ("base", "chat.jsonl", None),
            {},
            TypeError,
            "[tune] workdir: expected a string or a path, got None",
        ),
        (("base", "chat.jsonl", "runs/x"), {"adapter": 1}, TypeError, "[tune] adapter: expected"),
        (("base", "chat.jsonl", "runs/x"), {"progress": "no"}, TypeError, "[tune] progress: expected True"),
        (("base", "chat.jsonl", "runs/x"), {"lora_r": 8}, ValueError, "did you mean 'lora_rank'?"),
        (
            ("base", "chat.jsonl", "runs/x"),
            {"lora_rank": "8"},
            ValueError,
            "lora.rank: expected a whole number",
        ),
        (("base", "chat.jsonl", "runs/x"), {"train_epochs": None}, ValueError, "train.epochs: expected"),
        (("base", "chat.jsonl", "runs/x"), {"model_n_layer": 1}, ValueError, "the base decides the model"),
        (
            ("nobase", "chat.jsonl", "runs/x"),
            {},
            ValueError,
            "[tune] base: expected a folder with config.json",
        ),
        (("base", "none.jsonl", "runs/x"), {}, ValueError, "none.jsonl"),
    ],
)
def test_a_wrong_argument_is_named_and_leaves_no_run(
    arguments: tuple[str, str, str],
    fields: dict[str, int],
    kind: type[Exception],
    says: str,
    given: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(kind, match=re.escape(says)) as caught:
        mc.tune(*arguments, **fields)  # type: ignore[arg-type]
    assert "--" not in "".join(str(caught.value).split("`")[::2])
    assert not (given / "runs" / "x" / "run.json").exists()
    assert "importing" not in capsys.readouterr().out


def test_another_base_is_refused_in_words_of_python(given: Path) -> None:
    mc.tune("base", "chat.jsonl", "runs/first", progress=False, train_steps=1, train_seq_len=64)
    with pytest.raises(ValueError, match=r"\[tune\] data: .* give that, or another workdir"):
        mc.tune("base", "other.jsonl", "runs/first")


def test_prompts_of_the_training_data_are_named_as_such(given: Path) -> None:
    (given / "one.jsonl").write_text((given / "chat.jsonl").read_text().splitlines()[0])
    tuned = mc.tune("base", "one.jsonl", "runs/one", progress=False, train_steps=1, train_seq_len=64)
    said = "no example is held out, so these prompts are of the training data"
    assert tuned.of_training and f"\n{said}:\n" in repr(tuned) and said in tuned._repr_html_()
