"""Run.chat: answers equal a generation on the rendered conversation, for folders of Hugging Face and for runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import mudd_core as mc
from chat_cases import template, turns, write_folder
from hf_models import MODELS, transformers
from tune_folders import write_given

QUESTION = turns("the cat 1")
TALK = [
    QUESTION,
    turns("the cat 1", "end 1", "the cat 2"),
    turns("the cat 1", "end 1", "the cat 2", "fährt", "é"),
]
SEED = 2
THINKS = "{% if enable_thinking is defined and not enable_thinking %}end{% endif %}"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama and a chat template."""
    return write_given(tmp_path_factory.mktemp("chat"), 4) / "base"


def plain_answer(run: mc.Run, folder: Path, messages: list[dict[str, str]], count: int = 12) -> str:
    """Return the answer by transformers' rendering and a generation without a kept cache."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    ends = {tokenizer.convert_tokens_to_ids(name) for name in ("<|im_end|>", "</s>")}
    answer = []
    for token in run.model.generate(ids, max_tokens=count, temperature=0.8, top_p=0.95, seed=SEED):
        if token in ends:
            break
        answer.append(token)
    return str(tokenizer.decode(answer, skip_special_tokens=True))


def test_each_turn_equals_a_generation_on_the_whole_rendered_text(base: Path) -> None:
    run = mc.load_run(base)
    for messages in TALK:
        answer = run.chat(messages, max_tokens=12, seed=SEED)
        assert answer == plain_answer(run, base, messages) and answer
        stream = run.chat(messages, max_tokens=12, seed=SEED, stream=True)
        pieces = list(stream)
        assert "".join(pieces) == stream.text == answer and len(pieces) > 1
    assert run.chat_with()._cache.reused > 20


@pytest.mark.parametrize("name", ["mistral", "gpt2", "mixtral"])
def test_windows_positions_and_experts_reuse_the_cache_with_the_same_bits(name: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "x", "chatml")
    kind, settings = MODELS[name]
    longer = {key: 96 for key in ("n_positions", "max_position_embeddings") if key in settings}
    config = getattr(transformers, f"{kind}Config")(**{**settings, "vocab_size": 420, **longer})
    torch.manual_seed(3)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "x")
    run = mc.load_run(tmp_path / "x")
    answers = [run.chat(messages, max_tokens=12, seed=SEED) for messages in TALK]
    assert answers == [plain_answer(run, tmp_path / "x", messages) for messages in TALK] and any(answers)
    assert run.chat_with()._cache.reused > 20


def test_ids_without_text_and_special_tokens_have_the_greedy_text_of_transformers(tmp_path: Path) -> None:
    folder = write_given(tmp_path, 1, unused_ids=90) / "base"
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    torch.manual_seed(5)
    with torch.no_grad():  # both kinds of ids are likely, and change from step to step
        model.lm_head.weight.normal_(0, 0.5)
        model.lm_head.weight[start] *= 2
    model.save_pretrained(folder)
    run, seen = mc.load_run(folder), set[str]()
    ends = [tokenizer.convert_tokens_to_ids(name) for name in ("<|im_end|>", "</s>")]
    for words in ("the cat", "fährt 1.5", "return {x}", "漢字 é", "end"):
        asked = tokenizer.apply_chat_template(
            turns(words), add_generation_prompt=True, return_dict=False, return_tensors="pt"
        )
        for ids in (asked, torch.tensor([run.tokenizer.encode(words)])):
            found = model.generate(ids, max_new_tokens=30, do_sample=False, eos_token_id=ends, pad_token_id=0)
            new = [one for one in found[0, ids.shape[1] :].tolist() if one not in ends]
            seen |= {"no text"} if max(new) >= len(tokenizer) else set()
            seen |= {"special"} if start in new else set()
            if ids is asked:
                answer = run.chat(turns(words), max_tokens=30, temperature=0.0)
                assert answer == tokenizer.decode(new, skip_special_tokens=True)
                continue
            assert run.generate(words, max_tokens=30, temperature=0.0).partition("<|im_end|>")[0] == (
                tokenizer.decode(new)
            )
            assert run.tokenizer.decode(new) == tokenizer.decode(new)
    assert seen == {"no text", "special"}


def test_a_template_that_ignores_the_messages_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "deaf").write_text("{{ bos_token }}Hello{% if add_generation_prompt %}assistant: {% endif %}")
    with pytest.raises(
        ValueError, match=r"deaf: expected a chat template that renders the messages, got one"
    ):
        mc.load_run(base).chat(QUESTION, template=str(tmp_path / "deaf"))


def test_a_template_without_a_system_message_says_what_to_do(base: Path, tmp_path: Path) -> None:
    (tmp_path / "gemma").write_text(template("gemma", marks=False))
    run = mc.load_run(base)
    asked = [{"role": "system", "content": "Be brief"}, *QUESTION]
    with pytest.raises(
        ValueError,
        match=r"System role not supported; leave the system message out, and start the first message",
    ):
        run.chat(asked, template=str(tmp_path / "gemma"))
    with pytest.raises(ValueError, match=r"System role not supported$"):
        run.chat([*asked, *QUESTION], template=str(tmp_path / "gemma"))


def test_the_oldest_turns_leave_a_conversation_that_is_too_long(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = mc.load_run(base)
    system = [{"role": "system", "content": "end"}]
    long = turns(*["the cat return naïve" for _ in range(11)])
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    shorter = [
        tokenizer.apply_chat_template([*system, *long[at:]], add_generation_prompt=True, return_dict=False)
        for at in range(0, 11, 2)
    ]
    for count, room in ((12, 12), (500, 32)):
        fitting = next(ids for ids in shorter if len(ids) <= 128 - room)
        assert run.chat_with().prompt([*system, *long], count, {}) == fitting != shorter[-1]
    assert run.chat([*system, *long], max_tokens=12) is not None
    said = capsys.readouterr().err
    assert said.count("its oldest turns are left out") == 1
    with pytest.raises(
        ValueError, match=r"expected at most 127 tokens in the last message .*, got \d+; shorten them"
    ):
        run.chat(turns("the cat " * 100))
    with pytest.raises(ValueError, match="got more; shorten them"):
        run.chat(turns("x" * 2_000_000))
    assert run.chat(QUESTION, max_tokens=3, seed=SEED) == plain_answer(run, base, QUESTION, 3)


def test_a_stream_that_is_dropped_leaves_the_object_usable(base: Path) -> None:
    run = mc.load_run(base)
    first, second = run.chat(QUESTION, stream=True), run.chat(TALK[1], max_tokens=12, seed=SEED, stream=True)
    next(first)
    next(second)
    del first
    assert run.chat(TALK[1], max_tokens=12, seed=SEED) == plain_answer(run, base, TALK[1])
    assert second.text + "".join(second) == plain_answer(run, base, TALK[1])


def test_a_variable_of_the_template_is_set_or_refused(base: Path, tmp_path: Path) -> None:
    run = mc.load_run(base)
    with pytest.raises(
        ValueError, match=r"with the variable enable_thinking, and .* does not have it; leave it out"
    ):
        run.chat(QUESTION, enable_thinking=False)
    (tmp_path / "thinks").write_text(template("chatml", marks=False) + THINKS)
    settings: dict[str, Any] = {"template": str(tmp_path / "thinks"), "max_tokens": 12}
    without = run.chat(QUESTION, enable_thinking=False, **settings)
    assert without != run.chat(QUESTION, enable_thinking=True, **settings) == run.chat(QUESTION, **settings)


def test_a_template_without_a_token_at_the_end_of_a_turn_ends_at_its_text(base: Path, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text(
        "{% for t in messages %}{{ t.role }}: {{ t.content }}\nEND\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = mc.load_run(base).chat_with(str(tmp_path / "plain"))
    assert chat._stops == ("END",)
    (tmp_path / "next").write_text("{% for t in messages %}{{ t.role }}: {{ t.content }}\n{% endfor %}")
    assert mc.load_run(base).chat_with(str(tmp_path / "next"))._stops == ("user:",)


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ("hello", "expected a list like .*, got a value of type str"),
        ([], "got no messages"),
        (["hello"], "message 1: expected a dict with the keys role and content, got str"),
        ([{"role": "user"}], "message 1: expected the keys role and content, got role"),
        ([{"role": "user", "content": "a", "name": "b"}], "got role, content, name"),
        ([{"role": "human", "content": "a"}], "expected one of system, .* as role, got 'human'"),
        ([{"role": ["user"], "content": "a"}], r"as role, got \['user'\]"),
        ([{"role": "user", "content": None}], "expected a string as content, got a value of type NoneType"),
        (
            [{"role": "user", "content": "ab\ud800"}],
            "UTF-8 text, got the unpaired surrogate '.ud800' at byte 2",
        ),
        (turns("a", "b"), "expected the user's message at the end, got role 'assistant'"),
        ([{"role": "system", "content": "a"}], "expected the user's message at the end, got role 'system'"),
    ],
)
def test_other_messages_are_refused(base: Path, messages: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        mc.load_run(base).chat(messages)
    assert str(caught.value).startswith("[chat] messages: ")


def test_a_model_without_a_template_needs_one(base: Path, tmp_path: Path) -> None:
    run = mc.load_run(base)
    run.model.save(tmp_path / "model", run.tokenizer)
    saved = mc.load_run(tmp_path / "model")
    with pytest.raises(ValueError, match=re.escape("has no chat template (chat_template.jinja")):
        saved.chat(QUESTION)
    assert isinstance(saved.chat(QUESTION, template="chatml", max_tokens=3), str)
    with pytest.raises(
        TypeError, match=r"no argument 'max_new_tokens'; type chat\(messages, max_tokens=100\)"
    ):
        run.chat(QUESTION, max_new_tokens=3)  # type: ignore[call-overload]


def test_a_template_that_fails_says_so_and_the_next_call_works(base: Path, tmp_path: Path) -> None:
    (tmp_path / "fails").write_text(
        "{% for t in messages %}{% if 'boom' in t.content %}{{ raise_exception('no boom') }}{% endif %}{% endfor %}"
        + json.loads((base / "tokenizer_config.json").read_text())["chat_template"]
    )
    run = mc.load_run(base)
    with pytest.raises(ValueError, match="the template rejects it: no boom"):
        run.chat(turns("boom"), template=str(tmp_path / "fails"))
    again = run.chat(QUESTION, template=str(tmp_path / "fails"), max_tokens=12)
    chat = run.chat_with(str(tmp_path / "fails"))
    assert chat._renderer is not None
    chat._renderer._child.kill()
    with pytest.raises(ValueError, match=r"ended with signal 9|takes longer"):
        run.chat(QUESTION, template=str(tmp_path / "fails"))
    assert (
        run.chat(QUESTION, template=str(tmp_path / "fails"), max_tokens=12)
        == again
        == run.chat(QUESTION, max_tokens=12)
    )
