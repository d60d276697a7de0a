"""The chat template and the end-of-turn id that a run was trained with: in its exports, in sample and load_run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from chat_cases import tokenizer_json
from hf_models import transformers
from mudd_core.cli import main
from mudd_core.data.chat.templates import BUILT_IN, ChatTemplate
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
from tune_folders import write_given

pytest.importorskip("jinja2")
GEMMA = (
    "{% for t in messages %}{{ '<start_of_turn>' + t['role'] + '\n' + t['content'] + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>assistant\n' }}{% endif %}"
)
IDS = {token["content"]: token["id"] for token in json.loads(tokenizer_json())["added_tokens"]}
FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def trained(folder: Path, monkeypatch: pytest.MonkeyPatch, template: str) -> None:
    """Tune a small base in the folder with a template."""
    monkeypatch.chdir(folder)
    words = ["train.threads=1", "train.seq_len=64", "train.steps=1", "train.batch_size=2"]
    words += [f"data.template={template}", "sample.max_tokens=1"]
    assert main(["tune", "--base=base", "--data=chat.jsonl", "--workdir=run", *words]) == 0


@pytest.mark.parametrize("form", ["--merged", "--adapter"])
def test_another_template_goes_out_with_its_end(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_given(tmp_path, 12)
    (tmp_path / "own.jinja").write_text(GEMMA)
    trained(tmp_path, monkeypatch, "own.jinja")
    (tmp_path / "own.jinja").unlink()  # the run's cache contains it
    assert main(["export", "--workdir=run", "--to=out", form]) == 0
    theirs = transformers.AutoTokenizer.from_pretrained("out")
    assert theirs.eos_token == "<end_of_turn>" and theirs.chat_template == GEMMA
    text = theirs.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>assistant\n"
    ends = transformers.GenerationConfig.from_pretrained("out").eos_token_id
    assert ends == [IDS["<end_of_turn>"], IDS["</s>"]]
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (
        tmp_path / "base" / "tokenizer.json"
    ).read_bytes()
    found = mc.load_run("run").tokenizer
    assert found is not None and found.stop_ids == {IDS["<end_of_turn>"]}


def test_the_template_of_the_base_stays_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_given(tmp_path, 12)
    file = tmp_path / "base" / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": [IDS["</s>"], IDS["<|im_end|>"]]}))
    trained(tmp_path, monkeypatch, "auto")
    assert main(["export", "--workdir=run", "--to=out"]) == 0
    for name in FILES:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "base" / name).read_bytes(), name
    assert not (tmp_path / "out" / "chat_template.jinja").exists()


def test_an_end_of_turn_that_the_base_does_not_stop_at_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_given(tmp_path, 12)
    trained(tmp_path, monkeypatch, "auto")
    assert main(["export", "--workdir=run", "--to=out"]) == 0
    before, after = (json.loads((tmp_path / place / FILES[1]).read_text()) for place in ("base", "out"))
    assert after == {**before, "eos_token": "<|im_end|>"}  # its template stays in place
    ends = json.loads((tmp_path / "out" / FILES[2]).read_text())["eos_token_id"]
    assert ends == [IDS["<|im_end|>"], IDS["</s>"]]


@pytest.mark.parametrize(
    ("source", "end", "words"),
    [
        (BUILT_IN["chatml"], "<|im_end|>", ()),
        (GEMMA, "<end_of_turn>", ()),
        ("{% for t in messages %}{{ t.content }}{% endfor %}{{ eos_token }}", "</s>", ()),
        ("{% for t in messages %}{{ t.content + '\n' }}{% endfor %}", None, ("without a special token",)),
        (
            "{% for t in messages %}{{ '<|zz|>' + t.content }}{% endfor %}",
            None,
            ("without a special token", "<|zz|>"),
        ),
    ],
)
def test_ends_and_marks_of_templates(source: str, end: str | None, words: Any) -> None:
    tokenizer = JsonTokenizer(tokenizer_json(), "tokenizer.json")
    found = turn_end(ChatTemplate(source, "mine", {"eos_token": "</s>"}), tokenizer)
    assert found is not None and found.token == (None if end is None else IDS[end])
    notes = found.notes("mine")
    assert len(notes) == len(words)
    assert all(word in note for word, note in zip(words, notes, strict=True))


def test_a_template_that_cannot_render_has_no_end() -> None:
    tokenizer = JsonTokenizer(tokenizer_json(), "tokenizer.json")
    assert turn_end(ChatTemplate("{{ raise_exception('no') }}", "mine"), tokenizer) is None
