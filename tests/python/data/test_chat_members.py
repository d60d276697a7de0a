"""Keys in conversations of common data sets: null columns, arguments as strings, weights, reasoning, long texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from chat_cases import chat_config, write_folder, write_jsonl
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Json, JsonObject
from mudd_core.data.chat import build
from mudd_core.data.chat.conversations import Conversation, conversation_of, records
from mudd_core.data.chat.counted import RefusedError
from mudd_core.data.chat.masks import marked
from mudd_core.data.chat.members import tools_of
from mudd_core.data.formats import format_of
from mudd_core.data.pipelines import RowShape, chat, prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.data.tokenizers.tokenizer import Ids, JsonTokenizer

ASKS = {"role": "user", "content": "Why?"}
SAYS = {"role": "assistant", "content": "So."}


def call(arguments: Json) -> JsonObject:
    return {"type": "function", "function": {"name": "weather", "arguments": arguments}}


def talk(*calls: JsonObject) -> JsonObject:
    turn: JsonObject = {"role": "assistant", "content": "", "tool_calls": [*calls]}
    return {"messages": [ASKS, turn]}


def conversations(file: Path) -> list[Conversation]:
    return [conversation_of(record, "messages") for record in records(file, format_of(file))]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "datasets", "datasets.jsonl"])
def test_nulls_of_tables_are_not_members(kind: str, tmp_path: Path) -> None:
    """Compare with the same record without the nulls. A null that jsonl contains explicitly is kept."""
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    wanted = [talk(call({"city": "Rome"})), talk(call({"day": 3}), call({"city": "Oslo", "day": 4}))]
    table = pa.Table.from_pylist(wanted)
    file = tmp_path / f"a.{'arrow' if kind == 'arrow' else 'jsonl' if 'jsonl' in kind else 'parquet'}"
    if kind == "parquet":
        pq.write_table(table, file)
    elif kind == "arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif kind == "datasets":
        datasets.Dataset.from_list(wanted).to_parquet(str(file))
    else:
        datasets.Dataset.from_list(wanted).to_json(str(file))
    assert conversations(file) == [conversation_of(record, "messages") for record in wanted]
    lines = write_jsonl(tmp_path / "a.jsonl", [talk(call({"city": None}))])
    (one,) = conversations(lines)
    assert one.messages[1]["tool_calls"] == [call({"city": None})]
    lines = write_jsonl(tmp_path / "b.jsonl", [talk(call({"city": None})), *wanted])
    assert conversations(lines)[0].messages[1]["tool_calls"] == [call({"city": None})]


def test_arguments_that_are_json_text_become_objects() -> None:
    found = conversation_of(talk(call('{"city": "Rome"}'), call("not JSON"), call("[1]")), "messages")
    assert found.parsed == 1
    assert found.messages[1]["tool_calls"] == [call({"city": "Rome"}), call("not JSON"), call("[1]")]


def test_members_next_to_the_turns_are_read() -> None:
    record: JsonObject = {"messages": [ASKS, SAYS], "system": "Be kind.", "history": [["a", "b"]]}
    found = conversation_of(record, "messages")
    assert [turn["content"] for turn in found.messages] == ["Be kind.", "a", "b", "Why?", "So."]
    alpaca = {
        "instruction": "Why?",
        "output": "So.",
        "system": "Be kind.",
        "history": [["a", "b"], ["c", "d"]],
    }
    assert [turn["role"] for turn in conversation_of(alpaca, "messages").messages] == [
        "system",
        *["user", "assistant"] * 3,
    ]
    weather: JsonObject = {"name": "weather"}
    wrapped = [{"type": "function", "function": weather}]
    assert tools_of({"functions": [weather]}) == tools_of({"functions": json.dumps(weather)}) == wrapped
    assert tools_of({"tools": wrapped[0]}) == tools_of({"tools": json.dumps(wrapped)}) == wrapped
    assert tools_of({"tools": None}) is tools_of({"tools": []}) is tools_of({"tools": ""}) is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"system": ["a"]}, "system: expected a string, got a list"),
        ({"history": ["a"]}, "history: expected pairs"),
        ({"tools": 3}, "tools: expected a list, got a number"),
        (
            {"tools": {"weather": {}, "time": {}}},
            "tools: expected a list or one tool, got an object with time, weather",
        ),
        ({"tools": [{"name": "a"}], "functions": [{"name": "b"}]}, "it has tools and functions"),
        ({"functions": "{"}, "functions: expected a list, got a string that is not JSON"),
        ({"system": "b", "messages": [{"role": "system", "content": "a"}, ASKS, SAYS]}, "a key system"),
        ({"messages": [ASKS, {**SAYS, "weight": 0.5}]}, "turn 2: expected 0 or 1 as weight, got 0.5"),
        ({"messages": [ASKS, {**SAYS, "train": "no"}]}, "turn 2: expected true or false as train"),
        ({"messages": [ASKS, {**SAYS, "weight": 0}]}, "each turn of the assistant is excluded by weight 0"),
        ({"messages": [ASKS, {**SAYS, "loss": 0.3}]}, "turn 2: expected true or false as loss, got 0.3"),
        ({"messages": [ASKS, {**SAYS, "masked": "x"}]}, "turn 2: expected true or false as masked"),
        ({"messages": [ASKS, {**SAYS, "mask": 1}]}, "turn 2: expected weight, train or masked, got mask"),
        ({"weight": 0}, "weight: expected none next to the turns, or 1, got 0; write it into the turns"),
        ({"weight": 0.5}, "weight: expected none next to the turns, or 1, got 0.5"),
        ({"train": False}, "train: expected none next to the turns, or true, got False"),
        ({"masked": True}, "masked: expected none next to the turns, or false, got True"),
        ({"system": "a", "system_prompt": "b"}, "a key system_prompt and a key system"),
        ({"chat_template_kwargs": "x"}, "chat_template_kwargs: expected an object, got a text"),
        ({"chat_template_kwargs": {"tools": []}}, "expected variables of the template, got tools"),
        (
            {"messages": [ASKS, {**SAYS, "function_call": {}, "tool_calls": [{"function": {}}]}]},
            "function_call: expected one object and no tool_calls",
        ),
    ],
)
def test_members_that_cannot_be_read_are_refused_by_name(more: JsonObject, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        conversation_of({"messages": [ASKS, SAYS], **more}, "messages")


@pytest.mark.parametrize("more", [{"weight": 1}, {"train": True, "masked": False}, {"weight": None}])
def test_a_record_with_a_weight_of_1_is_trained(more: JsonObject) -> None:
    turn = {**SAYS, **more}
    found = conversation_of({"messages": [ASKS, turn], **more}, "messages")
    assert found.messages == [ASKS, SAYS] and not found.untrained


def test_older_forms_of_calls_are_read() -> None:
    function: JsonObject = {"name": "weather", "arguments": '{"city": "Rome"}'}
    older: JsonObject = {"role": "assistant", "content": None, "function_call": function}
    found = conversation_of({"messages": [ASKS, older]}, "messages")
    assert found.messages[1]["tool_calls"] == [call({"city": "Rome"})]
    text: JsonObject = {
        "role": "assistant",
        "content": "",
        "tool_calls": json.dumps([call({"city": "Rome"})]),
    }
    assert conversation_of({"messages": [ASKS, text]}, "messages").messages[1]["tool_calls"] == [
        call({"city": "Rome"})
    ]


def test_variables_of_a_record_reach_the_template(tmp_path: Path) -> None:
    """Pass them to the template as chat_template_kwargs, like trl."""
    template = (
        "{%- for m in messages %}{{ m.role + ('!' if loud else '') + m.content + '<|im_end|>' }}{%- endfor %}"
    )
    record = {"messages": [ASKS, SAYS]}
    kept = {**record, "system_prompt": "Hm.", "chat_template_kwargs": {"loud": True}}
    assert len(conversation_of(kept, "messages").digest()) == 32
    texts = shown(data_of(tmp_path, [record, kept], template))
    assert any("system!Hm." in text and "user!Why?" in text for text in texts)
    assert any("userWhy?" in text for text in texts)


def data_of(folder: Path, found: list[Any], template: str = "", *words: str) -> ChatData:
    write_folder(folder / "tokenizer", "chatml")
    if template:
        (folder / "t.jinja").write_text(template)
        words = (*words, f"data.template={folder}/t.jinja")
    made = prepare(chat_config(folder, write_jsonl(folder / "chat.jsonl", found), *words))
    assert isinstance(made, ChatData)
    return made


def shown(data: ChatData) -> list[str]:
    splits = data.rows("train", RowShape(256, 1, 0)), data.rows("valid", RowShape(256, 1, 0))
    ones = [one for split in splits for row in range(split.rows) for one in split.examples(row)]
    return sorted(marked(one.ids.tolist(), one.counts.tolist(), data.tokenizer.decode) for one in ones)


@pytest.mark.parametrize(
    "without", [{"weight": 0}, {"train": False}, {"loss": False}, {"trainable": 0}, {"masked": True}]
)
@pytest.mark.parametrize("marks", [False, True])
def test_an_answer_of_weight_0_is_not_trained(marks: bool, without: JsonObject, tmp_path: Path) -> None:
    answers = [{**SAYS, **without}, ASKS, {**SAYS, "content": "Yes.", "weight": 1}]
    folder = tmp_path / "tokenizer"
    write_folder(folder, "chatml", marks=marks)
    config = chat_config(tmp_path, write_jsonl(tmp_path / "chat.jsonl", [{"messages": [ASKS, *answers]}]))
    (text,) = shown(prepare(config))  # type: ignore[arg-type]
    assert text.count("{+") == 1 and "{+Yes." in text and "weight" not in text
    every = chat_config(tmp_path, tmp_path / "chat.jsonl", "data.loss_on=all")
    with pytest.raises(UserError, match="loss_on=all trains on every token"):
        prepare(every)


# As in Qwen3: removes the thoughts of answers before the last question.
STRIPS = (
    "{%- set last = namespace(at=0) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set last.at = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and m.reasoning_content and loop.index0 > last.at %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{%- endif %}{{ m.content + '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
# As in DeepSeek-R1-Distill: the generation prompt starts thoughts that are in no answer of the text.
OPENS = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role }}{{ m.content.split('</think>')[-1] + '<|im_end|>' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant<think>\\n' }}{%- endif %}"
)


def thinking(text: str) -> JsonObject:
    return {"role": "assistant", "content": text, "reasoning_content": "hm"}


def test_an_answer_whose_thoughts_are_taken_out_later_does_not_count(tmp_path: Path) -> None:
    messages = [ASKS, thinking("So."), ASKS, SAYS, ASKS, thinking("Yes.")]
    data = data_of(tmp_path, [{"messages": messages}], STRIPS)
    (text,) = shown(data)
    assert (
        text.count("{+") == 2 and "{+So." in text and text.endswith("{+<think>hm</think>Yes.<|im_end|>\\n+}")
    )
    assert any("1 earlier answers are changed by the template" in line for line in data.describe())


def test_a_trailing_question_is_left_out(tmp_path: Path) -> None:
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, thinking("So."), ASKS]}], STRIPS))
    assert text.endswith("{+<think>hm</think>So.<|im_end|>\\n+}")


def test_thoughts_that_the_prompt_alone_opens_are_no_fault(tmp_path: Path) -> None:
    said = {"role": "assistant", "content": "<think>hm</think>So."}
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, said, ASKS, SAYS]}], OPENS))
    assert text.count("{+So.<|im_end|>+}") == 2


@pytest.mark.parametrize("said", ["<b>x</b>", "<t>", "<think>"])
def test_an_answer_may_begin_as_the_prompt_ends(said: str, tmp_path: Path) -> None:
    """Check that an answer contains the characters that it shares with the end of the generation prompt, <think>."""
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, {**SAYS, "content": said}]}], OPENS))
    assert text.endswith(f"assistant{{+{said}<|im_end|>+}}")


# As in Phi-3: EOS follows only the last turn.
ENDS = (
    "{%- for m in messages %}{{ m.role + m.content + '<|im_end|>' }}{%- endfor %}"
    "{{ 'assistant' if add_generation_prompt else eos_token }}"
)
# As in gpt-oss: an answer removes the thoughts of the preceding call, and the prompt starts no channel.
CHANNELS = (
    "{%- for m in messages %}{%- set final = loop.index0 > 0 and not messages[-1].tool_calls and loop.last %}"
    "{%- if m.role == 'assistant' %}{%- if m.reasoning_content and not (m.tool_calls and messages[-1].content and "
    "messages[-1].role == 'assistant') %}{{ '<s>assistant/think:' + m.reasoning_content + '<|im_end|>' }}{%- endif %}"
    "{{ '<s>assistant/say:' + (m.tool_calls[0].function.name if m.tool_calls else m.content) + '<|im_end|>' }}"
    "{%- else %}{{ '<s>' + m.role + m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<s>assistant' }}{%- endif %}"
)
# As in DeepSeek: arguments are concatenated as strings, and a call is a turn whose content is null.
JOINS = (
    "{%- for m in messages %}{%- if m.content is none %}{%- for c in m.tool_calls %}"
    "{{ m.role + '<call>' + c.function.name + c.function.arguments }}{%- endfor %}{{ '<|im_end|>' }}"
    "{%- else %}{{ m.role + m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ 'assistant' }}{%- endif %}"
)
ANSWER = {"role": "tool", "name": "weather", "content": "6"}


def test_eos_after_the_last_turn_alone_leaves_the_earlier_answers(tmp_path: Path) -> None:
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, SAYS, ASKS, {**SAYS, "content": "Yes."}]}], ENDS))
    assert "{+So.<|im_end|>+}user" in text and text.endswith("{+Yes.<|im_end|></s>+}")


def test_an_answer_that_takes_thoughts_out_of_the_text_before_it_has_a_mask(tmp_path: Path) -> None:
    calls: JsonObject = {
        "role": "assistant",
        "content": "",
        "tool_calls": [call({})],
        "reasoning_content": "look",
    }
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, calls, ANSWER, thinking("So.")]}], CHANNELS))
    assert "look" not in text and text.count("{+") == 1
    assert text.endswith("<s>assistant{+/think:hm<|im_end|><s>assistant/say:So.<|im_end|>+}")


@pytest.mark.parametrize("arguments", ['{"city":"Rome"}', {"city": "Rome"}])
@pytest.mark.parametrize("content", [None, ""])
def test_calls_are_written_as_text_for_templates_that_join_text(
    arguments: Json, content: Json, tmp_path: Path
) -> None:
    """Check that a call has null content, because empty content would lose the call."""
    calls: JsonObject = {"role": "assistant", "content": content, "tool_calls": [call(arguments)]}
    (text,) = shown(data_of(tmp_path, [{"messages": [ASKS, calls, ANSWER, SAYS]}], JOINS))
    said = arguments if isinstance(arguments, str) else json.dumps(arguments)
    assert f"{{+<call>weather{said}<|im_end|>+}}" in text and text.endswith("{+So.<|im_end|>+}")


def test_a_template_that_drops_a_call_is_refused(tmp_path: Path) -> None:
    """Check the rejection: without it, training would use an empty answer."""
    with pytest.raises(UserError, match="the template writes 0 of 1 tool calls"):
        data_of(tmp_path, [{"messages": [ASKS, talk(call({}))["messages"][1], ANSWER, SAYS]}])  # type: ignore[index, call-overload]


@pytest.mark.parametrize(
    "source", ["{{ 'x' * 9000000 }}{{ messages[0].content }}", "{{ messages[0].content * 900000000 }}"]
)
def test_a_template_that_makes_every_text_too_large_is_refused_early(source: str, tmp_path: Path) -> None:
    """Check that it is rejected early: 2,000 conversations would take minutes."""
    with pytest.raises(UserError, match=r"t\.jinja: each of the first 20 conversations fails"):
        data_of(tmp_path, [{"messages": [ASKS, SAYS]}] * 50, source)


def test_a_text_far_above_the_sequences_is_dropped_and_counted(tmp_path: Path) -> None:
    """Check the limit: 16 million characters once needed 5 GB in the parent process."""
    template = (
        "{%- for m in messages %}{{ m.content * (16000000 if m.content == 'big' else 1) }}{%- endfor %}"
    )
    big = {"messages": [ASKS, {**SAYS, "content": "big"}]}
    data = data_of(tmp_path, [big, {"messages": [ASKS, SAYS]}, big], template)
    assert len(shown(data)) == 1
    assert any("2 conversations are far longer than train.seq_len" in line for line in data.describe())
    with pytest.raises(UserError, match="more than 1,048,576 characters"):
        data_of(tmp_path / "fails", [big], template, "data.too_long=fail")


def test_long_texts_are_tokenized_one_by_one_and_a_request_to_stop_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check memory (20 conversations just below the limit once needed 1.3 GB) and stops (SIGTERM waited for 64)."""
    template = "{%- for m in messages %}{{ m.content * (1000 if m.content == 'big' else 1) }}{%- endfor %}"
    big = {"messages": [ASKS, {**SAYS, "content": "big"}]}
    short = {"messages": [ASKS, SAYS]}
    calls: list[list[int]] = []
    stops: list[str] = []
    encode = JsonTokenizer.encode_with_places

    def counted(self: JsonTokenizer, texts: Sequence[str]) -> list[tuple[Ids, Ids]]:
        calls.append([len(text) for text in texts])
        return encode(self, texts)

    monkeypatch.setattr(JsonTokenizer, "encode_with_places", counted)
    monkeypatch.setattr(build, "end_on_request", stops.append)
    monkeypatch.setattr(build, "_CHARACTERS_AT_ONCE", 4000)
    data = data_of(tmp_path, [short, big, big, short, short, big], template)
    assert len(shown(data)) == 3
    assert max(map(sum, calls)) <= 4000
    assert any(len(one) > 1 for one in calls)  # short conversations are still tokenized together
    assert stops.count("tokenizing conversations") == len([one for one in calls if max(one) > 20]) >= 3


def test_a_text_without_answers_is_refused_before_it_is_tokenized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check the order: 2,000 conversations just below the limit once took hours."""
    monkeypatch.setattr(JsonTokenizer, "encode_with_places", lambda self, texts: pytest.fail("tokenized"))
    with pytest.raises(
        UserError, match="20 of 20 examples cannot be trained on: 20 with no token that has a loss"
    ):
        data_of(tmp_path, [{"messages": [ASKS, SAYS]}] * 20, "{{ 'x' * 1000000 }}")


def test_a_template_in_a_config_is_bounded_as_a_file_is(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tokenizer", "chatml")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": "x" * (2 << 20)}))
    with pytest.raises(FormatError, match="expected a chat template of at most 1,048,576 bytes"):
        prepare(chat_config(tmp_path, write_jsonl(tmp_path / "chat.jsonl", [{"messages": [ASKS, SAYS]}])))


def test_a_cache_of_an_earlier_version_serves_its_own_runs_alone(tmp_path: Path) -> None:
    """Check that new runs do not use it, because nulls and strings in it may have been read differently."""
    data = data_of(tmp_path, [{"messages": [ASKS, SAYS]}])
    config = chat_config(tmp_path, tmp_path / "chat.jsonl")
    with mock.patch.object(chat, "fingerprint_of", wraps=chat.fingerprint_of) as named:
        prepare(config)
    files, rule, _ = named.call_args.args
    kept = {name: value for name, value in rule.items() if name not in ("longest", "fails")}
    earlier = chat.fingerprint_of(files, {**kept, "chat": 1}, None)
    assert data.fingerprint != earlier
    assert prepare(config, fingerprint=earlier).fingerprint == earlier
