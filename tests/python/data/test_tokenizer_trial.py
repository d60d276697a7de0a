"""Files that make the tokenizers library abort, loop or exhaust memory: a child process ends with a message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mudd_core.base.child import Child
from mudd_core.base.errors import FormatError
from mudd_core.data import synthetic
from mudd_core.data.tokenizers import trial as tokenizer_trial
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer
from mudd_core.data.tokenizers.trial import has_own_form, try_in_child

TEXTS = [synthetic.text(2000, seed).encode() for seed in range(4)]
OWN: dict[str, Any] = json.loads(train_bpe(TEXTS, len(TEXTS), 300))


def file_of(*, model: dict[str, Any] | None = None, **top: object) -> bytes:
    """Return a small BPE file with these keys in the model and at the top level."""
    bpe = {"type": "BPE", "vocab": {"a": 0, "é": 1, "aé": 2, "</s>": 3}, "merges": [["a", "é"]]}
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "model": {**bpe, **(model or {})}, **top}
    ).encode()


ABORTS = file_of(model={"continuing_subword_prefix": "#"})  # removes one byte of é


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_trial, "_tried", set())


def test_a_merge_without_its_prefix_is_refused_before_the_library() -> None:
    with pytest.raises(FormatError, match=r"merges\[0\]: 'é' does not start with .*subword_prefix '#'"):
        JsonTokenizer(ABORTS, "t.json")


def test_an_abort_of_the_library_is_a_message() -> None:
    with pytest.raises(FormatError, match="ends the process with SIGABRT") as e:
        try_in_child(ABORTS, "t.json")
    assert (e.value.file, e.value.exit_code) == ("t.json", 65)


def test_a_text_that_grows_without_end_is_a_message() -> None:
    grow = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    data = file_of(normalizer={"type": "Sequence", "normalizers": [grow] * 3})
    with pytest.raises(FormatError, match="needs more than 512 MiB"):
        JsonTokenizer(data, "t.json").encode("a")


def test_a_trial_without_end_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_trial, "BASE_SECONDS", 0)
    with pytest.raises(FormatError, match="takes longer than 0 s"):
        JsonTokenizer(file_of(), "t.json").encode("a")


def test_a_good_file_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def counted(*args: Any, **kwargs: Any) -> Child:
        calls.append(args)
        return Child(*args, **kwargs)

    monkeypatch.setattr(tokenizer_trial, "Child", counted)
    for _ in range(2):
        assert JsonTokenizer(file_of(), "t.json").encode("aéa") == [2, 0]
    assert len(calls) == 1


def test_a_vocabulary_of_our_own_needs_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_trial, "Child", lambda *_args, **_more: pytest.fail("a child was started"))
    assert JsonTokenizer(json.dumps(OWN).encode(), "own.json").encode("the")


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "NFC"}},
        {"model": {**OWN["model"], "dropout": 0.5}},
        {"model": {**OWN["model"], "continuing_subword_prefix": ""}},
        {"added_tokens": [{**OWN["added_tokens"][0], "lstrip": True}]},
        {"added_tokens": OWN["added_tokens"] * 2},
        {"more": 1},
    ],
)
def test_any_other_member_needs_a_trial(change: dict[str, Any]) -> None:
    assert has_own_form(OWN)
    assert not has_own_form({**OWN, **change})
