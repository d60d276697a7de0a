"""Chat data: text and masks compared with transformers, the rules of the mask, and errors with their remedy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from chat_cases import FORMS, chat_config, template, turns, write_folder, write_jsonl
from chat_oracle import chats, compare
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.chat import child
from mudd_core.data.chat.masks import marked
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.rows import RowShape


@pytest.mark.parametrize("form", FORMS)
def test_ids_masks_and_refusals_are_those_of_transformers(form: str, tmp_path: Path) -> None:
    """Compare with and without generation marks in our template; transformers needs the marks."""
    for marks in (False, True):
        found = compare(tmp_path / str(marks), form, chats(FORMS.index(form), 8), marks=marks)
        assert found.equal >= 4
        assert found.equal + found.refused + found.uncertain == 8


def shown(folder: Path, records: list[dict[str, object]], *words: str, form: str = "chatml") -> list[str]:
    """Return the examples that are kept, with marks around the tokens that the loss includes."""
    write_folder(folder / "tokenizer", form)
    data = prepare(chat_config(folder, write_jsonl(folder / "chat.jsonl", records), *words))
    assert isinstance(data, ChatData)
    rows = data.rows("train", RowShape(256, 1, 0)), data.rows("valid", RowShape(256, 1, 0))
    found = [(one, split) for split in rows for row in range(split.rows) for one in split.examples(row)]
    assert data.tokenizer is not None
    return sorted(marked(one.ids.tolist(), one.counts.tolist(), data.tokenizer.decode) for one, _ in found)


QUESTION = "<|im_start|>user\\nWhy?<|im_end|>\\n<|im_start|>assistant\\n"


def test_the_three_layouts_of_records_say_the_same(tmp_path: Path) -> None:
    wanted = [QUESTION + "{+So.<|im_end|>\\n+}"]
    records: list[dict[str, object]] = [
        {"messages": turns("Why?", "So."), "other": 1},
        {"prompt": "Why?", "completion": "So."},
        {
            "prompt": turns("Why?"),
            "completion": [{"role": "assistant", "content": "So.", "tool_calls": None}],
        },
        {"instruction": "Why?", "input": "", "output": "So."},
        {"talk": turns("Why?", "So.")},
    ]
    for number, record in enumerate(records):
        words = ["data.column=talk"] if "talk" in record else []
        assert shown(tmp_path / str(number), [record], *words) == wanted
    both = shown(tmp_path / "input", [{"instruction": "Why?", "input": "It is.", "output": "So."}])
    assert both == [QUESTION.replace("Why?", "Why?\\n\\nIt is.") + "{+So.<|im_end|>\\n+}"]


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_of_tables_are_read_as_lines_are(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    records: list[dict[str, object]] = [
        {"messages": turns("Why?", "So.", "And?")},
        {"messages": turns("a", "b")},
    ]
    expected = shown(tmp_path / "lines", records)
    folder = tmp_path / kind
    folder.mkdir()
    table = pa.Table.from_pylist(records)
    if kind == "parquet":
        parquet.write_table(table, folder / "chat.parquet")
    else:
        with (
            pa.OSFile(str(folder / "chat.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)
    assert shown(folder, [], f"data.path={folder}/chat.{kind}") == expected


@pytest.mark.parametrize(
    ("loss_on", "wanted"),
    [
        ("assistant", "Q{+one<|im_end|>\\n+}Q{+two<|im_end|>\\n+}"),
        ("last", "Qone<|im_end|>\\nQ{+two<|im_end|>\\n+}"),
        ("all", "{+Qone<|im_end|>\\nQtwo<|im_end|>\\n+}"),
    ],
)
def test_loss_on_says_which_turns_count(loss_on: str, wanted: str, tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"messages": turns("Why?", "one", "Why?", "two")}]
    assert shown(tmp_path, records, f"data.loss_on={loss_on}") == [wanted.replace("Q", QUESTION)]


def refusal(folder: Path, records: list[dict[str, object]], *words: str, form: str = "chatml") -> str:
    with pytest.raises(UserError) as caught:
        shown(folder, records, *words, form=form)
    return str(caught.value)


GOOD: dict[str, object] = {"messages": turns("Why?", "So.")}


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (turns("Why?"), "it has no turn of the assistant"),
        (turns("Why?", "  "), "turn 2: the answer is empty"),
        (
            [{"role": "bot", "content": "x"}],
            "expected one of system, developer, user, assistant, tool as role, got 'bot'",
        ),
        ([{"role": "user", "content": 3}], "turn 1: expected a string as content, got a number"),
        ("Why?", "messages: expected a list of messages, got a text"),
        (turns("Why?", " \nSo."), "a turn starts or ends inside a token"),
        ([{"role": "human", "content": "x"}], "got 'human'; write user"),
        ([{"from": "human", "value": "x"}], "it has from and value, as ShareGPT's"),
        ([{"role": "user", "content": [{"type": "image"}]}], "turn 1: expected parts"),
    ],
)
def test_an_example_that_cannot_be_trained_on_is_named(messages: object, said: str, tmp_path: Path) -> None:
    records = [GOOD, {"messages": messages}, GOOD]
    text = refusal(tmp_path, records)
    assert text.startswith("[data.path] 1 of 3 examples cannot be trained on: 1 with ")
    assert "example 2 of chat.jsonl: " in text and said in text and "data.bad_examples=drop" in text
    assert len(shown(tmp_path, records, "data.bad_examples=drop")) == 2


TWICE = "{{ bos_token + bos_token }}{% for t in messages %}{{ t.content + eos_token }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (TWICE, "its text starts with BOS twice"),
        (
            TWICE.replace("bos_token + ", "").replace("t.content +", "t.content + eos_token +"),
            "EOS follows EOS",
        ),
        (
            "{{ messages | length }}{{ messages[-1].content }}",
            "the text changes when turn 2 or a later one is added",
        ),
        ("{{ nothing.there }}", "the template rejects it: 'nothing' is undefined"),
        ("{{ ''.__class__.__mro__ }}", "access to attribute '__class__' of 'str' object is unsafe"),
        (
            "{% generation %}{% endgeneration %}{{ messages[0].content }}",
            "the template marks 0 parts, but the assistant has 1 turns",
        ),
    ],
)
def test_a_template_that_spoils_examples_is_refused_with_its_texts(
    source: str, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "t.jinja"
    file.write_text(source)
    text = refusal(tmp_path, [GOOD], f"data.template={file}")
    assert said in text and "example 1 of chat.jsonl" in text


def test_both_texts_are_shown_where_a_turn_changes_the_text_before_it(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ messages | length }}{% for t in messages %}{{ t.content }}{% endfor %}")
    text = refusal(tmp_path, [GOOD], f"data.template={file}")
    assert "  first   '1Why?'" in text and "  second  '2Why?So.'" in text
    assert "data.template=FILE" in text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            "takes longer than 0.5 s",
        ),
        ("{% if %}", "t.jinja is no Jinja template: Expected an expression"),
    ],
)
def test_a_template_that_loops_or_is_none_ends_the_start(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudd_core.data.chat.renderer.SECONDS", 0.5)
    file = tmp_path / "t.jinja"
    file.write_text(source)
    assert said in refusal(tmp_path, [GOOD], f"data.template={file}")


def test_a_template_that_takes_all_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ 'x' * 2000000000 }}{{ messages[0].content }}")
    assert "the template needs too much memory" in refusal(tmp_path, [GOOD], f"data.template={file}")


def test_what_is_missing_is_named_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path / "tokenizer", "chatml")
    data = write_jsonl(tmp_path / "chat.jsonl", [{"text": "x"}])
    with pytest.raises(
        UserError, match=r"data\.column\] example 1 of .*: expected records with messages, .* got text; "
    ):
        prepare(chat_config(tmp_path, data))
    write_jsonl(data, [{"prompt": "x", "chosen": "y", "rejected": "z"}])
    with pytest.raises(
        UserError, match=r"got chosen, prompt, rejected; a pair of answers needs loss\.kind=dpo"
    ):
        prepare(chat_config(tmp_path, data))
    write_jsonl(data, [{"text": "x"}])
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    with pytest.raises(UserError, match=r"has none .*; set data\.template=chatml"):
        prepare(chat_config(tmp_path, data))
    with pytest.raises(UserError, match=r"needs a tokenizer\.json, .* got bpe"):
        prepare(chat_config(tmp_path, data, "data.tokenizer=bpe"))
    data.write_text('{"messages": [}\n')
    with pytest.raises(FormatError, match="line 1 is not JSON"):
        prepare(chat_config(tmp_path, data, "data.template=chatml"))
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(
        UserError, match=r"expected the package jinja2 to render chat templates, got none; install it: "
    ):
        prepare(chat_config(tmp_path, data, "data.template=chatml"))


def test_a_run_trains_on_neither_nothing_nor_all_unless_asked(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text(
        "{% for t in messages %}{% generation %}<|im_end|>{{ t.content }}{% endgeneration %}{% endfor %}"
    )
    records: list[dict[str, object]] = [{"messages": turns("one", "two", "three", "four")}]
    text = refusal(tmp_path, records, f"data.template={file}")
    assert text.startswith(
        "[data.loss_on] 100% of the targets contribute to the loss with data.loss_on=assistant"
    )
    assert shown(tmp_path, records, f"data.template={file}", "data.loss_on=all") == [
        "{+" + "".join(f"<|im_end|>{word}" for word in ("one", "two", "three", "four")) + "+}"
    ]


def test_tools_and_named_templates_reach_the_text(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokenizer", "chatml")
    named = '[{"name": "rag", "template": "x"}, {"name": "default", "template": "%s"}]'
    source = "{{ tools | tojson }}{% for t in messages %}{{ t.content }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(
        '{"eos_token": {"content": "</s>"}, "chat_template": ' + named % source + "}"
    )
    record: dict[str, object] = {**GOOD, "tools": [{"name": "näh"}]}
    data = prepare(chat_config(tmp_path, write_jsonl(tmp_path / "chat.jsonl", [record])))
    assert '[{"name": "näh"}]Why?{+So.+}' in data.shown()[0].replace("\\\\", "\\")  # type: ignore[attr-defined]


def test_marks_inside_marks_of_other_text_are_found_by_place() -> None:
    """Check that private characters around marked text are removed, and that the marks refer to the text without
    them.
    """
    template_ = child.compiled("a{% generation %}bc{% endgeneration %}d{% generation %}{% endgeneration %}")
    found = child.renderer(template_, {})([], False)
    assert (found.text, found.marks) == ("abcd", [(1, 3), (4, 4)])
    assert np.all([not child.has_marks(template(form, marks=False)) for form in FORMS])


def test_a_record_of_another_layout_is_named_with_what_it_has(tmp_path: Path) -> None:
    """Check both places: the first record of a file ends the start, and later records count as rejected."""
    talk = [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]
    cases: list[tuple[dict[str, object], str]] = [
        ({"conversations": talk}, "got conversations; its conversations have from and value, as ShareGPT's"),
        ({"conversations": turns("a", "b")}, "data.column=conversations reads the messages of conversations"),
        ({"question": "a", "answer": "b"}, "got answer, question; rename them, or set data.column"),
    ]
    for number, (record, said) in enumerate(cases):
        text = refusal(tmp_path / str(number), [record, GOOD])
        assert text.startswith("[data.column] example 1 of chat.jsonl: ") and said in text
        text = refusal(tmp_path / f"later {number}", [GOOD, record])
        assert "1 of 2 examples" in text and "example 2 of chat.jsonl: " in text and said in text
    assert len(shown(tmp_path / "dropped", [GOOD, {"foo": 1}], "data.bad_examples=drop")) == 1


PARTS: list[dict[str, object]] = [
    {
        "messages": [
            {**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in turns("Why?", "So.")
        ]
    }
]


def test_content_in_parts_is_trained_on_where_the_template_reads_it(tmp_path: Path) -> None:
    """Use templates that expect strings: they would drop content in parts, or write it as a list."""
    reads = "{% for t in messages %}{{ '<|im_start|>' }}{% for p in t.content %}{{ p.text }}{% endfor %}{% endfor %}"
    reads += "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
    drops = "{% for t in messages %}{{ '<|im_start|>' }}{{ t.content if t.content is string else '' }}{% endfor %}"
    writes = "{% for t in messages %}{{ '<|im_start|>' }}{{ t.content | trim }}{% endfor %}"
    file = tmp_path / "t.jinja"
    file.write_text(reads)
    assert shown(tmp_path / "reads", PARTS, f"data.template={file}") == [
        "<|im_start|>Why?<|im_start|>{+So.+}"
    ]
    for source in (drops, writes):
        file.write_text(source)
        text = refusal(tmp_path / str(len(source)), PARTS, f"data.template={file}", "data.loss_on=all")
        assert "turn 1: the template does not read content in parts; write it as one string" in text


def test_thoughts_have_the_names_of_transformers(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text(
        "{% for t in messages %}{{ t.content }}{{ t.reasoning_content }}{{ t.thinking }}{% endfor %}"
    )
    for name in ("reasoning_content", "thinking", "reasoning"):
        record = {"messages": [*turns("Why?"), {"role": "assistant", "content": "So.", name: "hm"}]}
        assert shown(tmp_path / name, [record], f"data.template={file}") == ["Why?{+So.hmhm+}"]


def test_a_hint_is_given_where_it_helps(tmp_path: Path) -> None:
    """Check both hints.

    The last answer has a mask if the template changes only earlier answers. The text before a first turn may be
    unknown.
    """
    turn = "{% for t in messages %}{{ '<|im_start|>' }}{{ '.' if loop.last }}{{ t.content }}{% endfor %}"
    prompt = "{% if add_generation_prompt %}{{ '<|im_start|>' }}{% endif %}"
    first = "{{ messages[0].role }}"
    file = tmp_path / "t.jinja"
    talk: list[dict[str, object]] = [{"messages": turns("a", "b", "c", "d")}]
    file.write_text("{{ messages | length }}" + turn)
    assert "data.loss_on=last" not in refusal(tmp_path / "no", talk, f"data.template={file}")
    file.write_text(turn.replace("loop.last", "loop.last and t.role == 'assistant' ") + prompt)
    (text,) = shown(tmp_path / "last", talk, f"data.template={file}")
    assert text.count("{+") == 1 and text.endswith(
        "{+.d+}"
    )  # in the complete text the earlier answer differs from its generated form
    assert shown(tmp_path / "used", talk, f"data.template={file}", "data.loss_on=last")
    file.write_text(first + turn + prompt)
    begins: list[dict[str, object]] = [{"messages": turns("a", "b")[::-1]}]
    text = refusal(tmp_path / "first", begins, f"data.template={file}")
    assert "its first turn is the assistant's, and the template cannot render the text before it" in text


def test_a_template_is_chosen_by_its_name(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokenizer", "chatml")
    config = folder / "tokenizer_config.json"
    settings = json.loads(config.read_text())
    for name, said in (("default", ""), ("chat", "expected a template named default in ")):
        for named in (
            [{"name": name, "template": settings["chat_template"]}],
            {name: settings["chat_template"]},
        ):
            config.write_text(json.dumps({**settings, "chat_template": named}))
            run = chat_config(tmp_path, write_jsonl(tmp_path / "chat.jsonl", [GOOD, GOOD]))
            if not said:
                assert prepare(run).documents == (2, 0)
                continue
            with pytest.raises(UserError, match=said):
                prepare(run)


def test_files_of_windows_are_read_and_no_conversation_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    file = tmp_path / "chat.jsonl"
    text = "".join(f"{json.dumps(GOOD)}\r\n" for _ in range(2))
    file.write_bytes(text.encode("utf-8-sig"))
    assert prepare(chat_config(tmp_path, file)).documents == (2, 0)
    file.write_bytes(text.encode("utf-16"))
    with pytest.raises(
        FormatError, match=r"it is UTF-16; type `iconv -f UTF-16 -t UTF-8 .*chat\.utf8\.jsonl` and name"
    ):
        prepare(chat_config(tmp_path, file))
    for content, words, said in (
        (b"\n", (), "expected conversations in .*, got none$"),
        (b'{"messages": []}\n', ("data.bad_examples=drop",), "none that can be trained on: 1 with no answer"),
    ):
        file.write_bytes(content)
        config = chat_config(tmp_path, file, *words)
        with pytest.raises(UserError, match=said):
            prepare(config).rows("train", RowShape(64, 1, 0))
