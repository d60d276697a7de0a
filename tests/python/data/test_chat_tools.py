"""Named templates: conversations with tools use the template `tool_use`, as in transformers, wherever it is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chat_cases import chat_config, turns, write_folder, write_jsonl
from hf_models import transformers
from mudd_core.base.errors import FormatError, UserError
from mudd_core.cli import main
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.rows import RowShape
from tune_folders import write_given

DEFAULT = "{% for t in messages %}<|im_start|>{{ t.content }}<|im_end|>{% endfor %}"
TOOL_USE = "{{ tools | tojson }}" + DEFAULT
TOOLS = [
    {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
]
RECORDS: list[dict[str, object]] = [
    {"messages": turns("What time?", "Noon.")},
    {"messages": turns("What time?", "Late."), "tools": TOOLS},
    {"messages": turns("What time?", "Early."), "tools": []},
]


def named(folder: Path, value: object) -> Path:
    """Write a tokenizer's folder with these templates in its config."""
    write_folder(folder, "chatml")
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": value}))
    return folder


def kept(folder: Path) -> list[list[int]]:
    """Return the ids of the examples that the folder's tokenizer creates from the records."""
    data = prepare(chat_config(folder, write_jsonl(folder / "chat.jsonl", RECORDS)))
    assert isinstance(data, ChatData)
    splits = data.rows("train", RowShape(256, 1, 0)), data.rows("valid", RowShape(256, 1, 0))
    return sorted(
        one.ids.tolist() for rows in splits for row in range(rows.rows) for one in rows.examples(row)
    )


LIST = [{"name": "default", "template": DEFAULT}, {"name": "tool_use", "template": TOOL_USE}]


@pytest.mark.parametrize("layout", ["list", "object", "files", "no tool_use"])
def test_tools_choose_the_template_that_transformers_takes(layout: str, tmp_path: Path) -> None:
    by_name = {one["name"]: one["template"] for one in LIST}
    values = {
        "list": LIST,
        "object": by_name,
        "files": LIST,
        "no tool_use": [*LIST[:1], {"name": "rag", "template": ""}],
    }
    folder = named(tmp_path / "tokenizer", values[layout])
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    if layout == "files":
        (folder / "tokenizer_config.json").unlink()
        theirs.save_pretrained(folder)
        assert (folder / "additional_chat_templates" / "tool_use.jinja").read_text() == TOOL_USE
    texts = [
        theirs.apply_chat_template(one["messages"], tools=one.get("tools") or None, tokenize=False)
        for one in RECORDS
    ]
    assert [text.startswith("[{") for text in texts] == [False, layout != "no tool_use", False]
    assert kept(tmp_path) == sorted(theirs(text, add_special_tokens=False)["input_ids"] for text in texts)


def test_a_bad_template_for_tools_is_refused(tmp_path: Path) -> None:
    for text, error, said in (
        ("{% if %}", UserError, "is no Jinja template"),
        (3, FormatError, "expected a string, got 3"),
    ):
        named(tmp_path / "tokenizer", [LIST[0], {"name": "tool_use", "template": text}])
        with pytest.raises(error, match=said):
            kept(tmp_path)


def test_a_tuning_takes_it_and_its_export_carries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_given(tmp_path, 1)
    named(tmp_path / "base", DEFAULT)
    (tmp_path / "base" / "chat_template.jinja").write_text(DEFAULT)
    file = Path("additional_chat_templates", "tool_use.jinja")
    (tmp_path / "base" / file).parent.mkdir()
    (tmp_path / "base" / file).write_text(TOOL_USE)
    write_jsonl(tmp_path / "chat.jsonl", [RECORDS[1]])
    monkeypatch.chdir(tmp_path)
    words = ("--base=base", "--data=chat.jsonl", "--workdir=mine", "train.threads=1", "train.steps=1")
    assert main(["tune", *words, "train.seq_len=128"]) == 0
    assert '{"name": "clock"' in capsys.readouterr().out.replace("\\", "")
    for form in ("--merged", "--adapter"):
        assert main(["export", "--workdir=mine", f"--to=out{form}", form]) == 0
        assert (tmp_path / f"out{form}" / file).read_text() == TOOL_USE
