"""The end of a turn in the answers that tune prints: the template's text, not an end that all answers have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from chat_cases import chat_config, turns, write_folder, write_jsonl
from mudd_core.cli.tune import before_after
from mudd_core.cli.tune.before_after import _end_of, _held_out
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from text_settings import quiet

PLAIN = "{% for t in messages %}{{ t.role }}>{{ t.content }}@{% endfor %}"


@pytest.mark.parametrize(("end", "found"), [("\nEND\n", "\nEND\n"), ("\n", "")])
def test_answers_keep_the_words_at_their_end_that_all_of_them_have(
    end: str, found: str, tmp_path: Path
) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    (tmp_path / "plain").write_text(
        PLAIN.replace("@", end) + "{% if add_generation_prompt %}assistant>{% endif %}"
    )
    answers = ("the cat, yes.", "the end, yes.", "a naïve end, yes.")
    write_jsonl(
        tmp_path / "chat.jsonl", [{"messages": turns("the cat", answers[at % 3])} for at in range(40)]
    )
    data = prepare(
        chat_config(tmp_path, tmp_path / "chat.jsonl", f"data.template={tmp_path / 'plain'}"), progress=quiet
    )
    assert isinstance(data, ChatData)
    examples = _held_out(data, 64)
    assert len(examples) > 1 and _end_of(data, examples) == found
    for one in examples:
        text = data.tokenizer.decode(one.answer)
        assert text.removesuffix(found).rstrip("\n").endswith("yes.")


def test_an_answer_ends_at_the_token_whatever_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "tokenizer", "chatml")
    chats: list[dict[str, object]] = [{"messages": turns("the cat", "yes.")} for _ in range(40)]
    write_jsonl(tmp_path / "chat.jsonl", chats)
    config = chat_config(tmp_path, tmp_path / "chat.jsonl")
    data = prepare(config, progress=quiet)
    assert isinstance(data, ChatData) and _end_of(data, _held_out(data, 64)) == "<|im_end|>\n"
    ids = list(data.tokenizer.encode("no")) + list(data.tokenizer.encode("<|im_end|>cat"))
    model = SimpleNamespace(config=SimpleNamespace(max_seq_len=64), generate=lambda *_, **__: ids)
    run, base = SimpleNamespace(path=tmp_path), SimpleNamespace(run=SimpleNamespace(path=tmp_path))
    monkeypatch.setattr(before_after, "read_saved_config", lambda run: config)
    monkeypatch.setattr(before_after, "read_facts", lambda run: {})
    monkeypatch.setattr(before_after, "prepare", lambda *_, **__: data)
    monkeypatch.setattr(before_after, "load_run", lambda path: SimpleNamespace(model=model))
    found = before_after.answers_of(run, base)  # type: ignore[arg-type]
    assert [(one.data, one.before, one.after) for one in found.answers] == [("yes.", "no", "no")] * 3
