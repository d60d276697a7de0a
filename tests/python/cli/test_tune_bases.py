"""The command tune with a base that was edited after its import, a run as its base, and a plan for ranks."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mudd_core as mc
from chat_cases import turns, write_jsonl
from mudd_core.cli import main

Told = pytest.CaptureFixture[str]
SETTINGS = "tokenizer_config.json"


def tune(*words: str, base: str = "base", run: str = "mine") -> int:
    fields = ("train.threads=1", "train.seq_len=64", "train.steps=2")
    return main(["tune", f"--base={base}", "--data=chat.jsonl", f"--workdir=runs/{run}", *fields, *words])


def edit(file: Path, change: Callable[[dict[str, str]], object]) -> None:
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


def say_please(value: dict[str, str]) -> None:
    value["chat_template"] = value["chat_template"].replace("<|im_end|>", "please<|im_end|>")


def test_a_base_that_is_edited_before_training_is_imported_again(here: Path, capsys: Told) -> None:
    assert tune("--plan") == 0
    edit(here / "base" / SETTINGS, say_please)
    assert tune() == 0
    text = capsys.readouterr().out
    assert f"{SETTINGS} changed since the import, and nothing is trained yet" in text
    assert text.count("importing base into runs/mine/base") == 2 and "please<|im_end|>" in text
    kept = here / "runs" / "mine" / "base" / "imported" / SETTINGS
    assert kept.read_bytes() == (here / "base" / SETTINGS).read_bytes()


def test_a_base_that_is_edited_after_it_is_refused_by_the_name_of_the_file(here: Path, capsys: Told) -> None:
    assert tune("train.stop_at=1") == 75
    shutil.copytree(here / "base", here / "kept")
    edit(here / "base" / "config.json", lambda value: value.update(transformers_version="9.9"))
    assert tune("--plan") == 0  # another text, but the same model
    edit(here / "base" / SETTINGS, say_please)
    shutil.copytree(here / "base", here / "other")
    capsys.readouterr()
    for name, said in (
        (
            "base",
            f"[tune] --base: {SETTINGS} in base changed after the start of runs/mine; restore them to",
        ),
        ("other", f"base, and other has other files ({SETTINGS}); give the same base, or another --workdir"),
    ):
        assert tune(base=name) == 2
        text = capsys.readouterr().err
        assert said in text, text
    assert main(["export", "--workdir=runs/mine", "--to=out", "--adapter"]) == 0
    assert f"note: {SETTINGS} in {here / 'base'} changed after the tuning started" in capsys.readouterr().err
    shutil.rmtree(here / "base")
    assert tune() == 0  # the run contains a copy of everything that it needs
    (here / "kept").rename(here / "base")
    assert tune() == 0


def test_a_base_where_it_would_be_imported_to_is_refused_and_kept(here: Path, capsys: Told) -> None:
    before = sorted(file.name for file in (here / "base").iterdir())
    assert main(["tune", "--base=base", "--data=chat.jsonl", "--workdir=."]) == 2
    assert "[tune] --workdir: base is the folder for the imported base" in capsys.readouterr().err
    assert sorted(file.name for file in (here / "base").iterdir()) == before


def test_a_run_is_a_base(here: Path, capsys: Told) -> None:
    assert tune("tune.method=full") == 0
    assert tune("data.template=chatml", base="runs/mine", run="more") == 0
    text = capsys.readouterr().out
    assert "adapters of the base " in text and text.count("held-out loss: ") == 2
    assert tune("data.template=chatml", run="more") == 2
    said = r"\[tune\] --base: runs/more was started from runs/mine \(SHA-256 [0-9a-f]{12}\), got base; give that, or"
    assert re.search(said, capsys.readouterr().err)
    assert not (here / "runs" / "more" / "base").exists()


def test_a_plan_for_ranks_has_their_share(here: Path, capsys: Told) -> None:
    fields = ("train.batch_size=4", "train.micro_batch_size=0")
    assert tune("--plan", "--ranks=2", *fields) == 0
    text = capsys.readouterr().out
    assert re.search(r"^  ranks +2 as .*, 2 on a node", text, re.M) and "of a node of 2;" in text
    assert re.search(r"^    mesh\.zero=3 ", text, re.M), text
    assert tune("--plan", "--ranks=2", "train.batch_size=1", "mesh.zero=3", "lora.init=pissa") == 2
    assert "pissa needs whole matrices" in capsys.readouterr().err
    assert tune("--plan", "--ranks=0") == 2
    assert "--ranks: expected" in capsys.readouterr().err


def test_a_run_whose_data_changed_goes_on_with_those_it_began_with_and_says_so(
    here: Path, capsys: Told
) -> None:
    assert tune("train.stop_at=1") == 75
    said = "note: chat.jsonl changed after the start of runs/mine; the run continues with its original conversations"
    (here / "chat.jsonl").touch()  # changes only the time
    assert tune("train.stop_at=1") == 75 and said not in capsys.readouterr().out
    with (here / "chat.jsonl").open("a") as file:
        file.write('{"prompt": "more", "completion": "and more"}\n')
    assert tune("train.stop_at=1") == 75 and said in capsys.readouterr().out
    (here / "chat.jsonl").unlink()
    assert tune() == 0 and said not in capsys.readouterr().out


def test_one_example_is_trained_on_and_the_prompt_is_said_to_be_it(here: Path, capsys: Told) -> None:
    (here / "chat.jsonl").write_text((here / "chat.jsonl").read_text().splitlines()[0])
    assert tune("train.steps=3") == 0
    text = capsys.readouterr()
    assert "no example is held out, so these prompts are of the training data:" in text.out
    assert (
        "but the text has only" not in text.err + text.out
    )  # three epochs of one sequence, most of it padding
    assert main(["data", "show", "--workdir=runs/mine"]) == 0
    assert re.search(r"^  inputs   '[^!]*' \[\d+ of padding\]$", capsys.readouterr().out, re.M)


def test_a_batch_has_a_row_for_each_rank(here: Path, capsys: Told) -> None:
    def batch_of(*words: str) -> str:
        assert tune("--plan", *words) == 0
        found = re.search(r"^  (train\.batch_size=.*)$", capsys.readouterr().out, re.M)
        assert found
        return found[1]

    write_jsonl(here / "chat.jsonl", [{"messages": turns("a", f"{n}")} for n in range(60)])
    short = ("train.seq_len=128", "train.steps=4")
    assert re.match(r"train\.batch_size=1 +\d", batch_of(*short))
    with_ranks = (
        r"train\.batch_size=2 +a sequence for each of 2 ranks \(one process would use 1 by default\); "
    )
    assert re.match(with_ranks, batch_of(*short, "--ranks=2"))
    assert batch_of("train.batch_size=4", "--ranks=2").endswith("as the arguments say")
    (here / "chat.jsonl").write_text("".join((here / "chat.jsonl").read_text().splitlines(True)[:2]))
    capsys.readouterr()
    assert tune(*short, "--plan", "--ranks=8", run="few") == 2
    assert "8 ranks are more than the sequences of a step" in capsys.readouterr().err


def test_a_base_whose_end_only_its_config_names_is_tuned(here: Path) -> None:
    for name in ("tokenizer.json", SETTINGS):
        text = (here / "base" / name).read_text()
        (here / "base" / name).write_text(
            text.replace("</s>", "<|eot|>")
            .replace("<|endoftext|>", "<|none|>")
            .replace("<|im_end|>", "<|done|>")
        )
    edit(here / "base" / SETTINGS, lambda value: value.update(eos_token="<|eot|>"))
    assert tune() == 0
    found, base = mc.load_run("runs/mine").tokenizer, mc.load_run("base").tokenizer
    assert found is not None and base is not None and found.eos_id == base.eos_id
    assert main(["export", "--workdir=runs/mine", "--to=out"]) == 0
