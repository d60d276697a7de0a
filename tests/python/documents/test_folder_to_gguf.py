"""The commands of docs/from-folder-to-gguf.md from a folder to a GGUF file, with which llama.cpp answers as `chat`."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
import torch

import mudd_core as mc
from chat_cases import Turn, turns, write_jsonl
from gguf_cases import SIZE, LlamaCpp, write_tokenizer
from hf_models import transformers
from launched import arguments_of, launched
from page_commands import of_page
from places import ROOT

PAGE = "docs/from-folder-to-gguf.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
CAPITALS = {
    "France": "Paris", "Spain": "Madrid", "Italy": "Rome", "Greece": "Athens", "Norway": "Oslo", "Poland": "Warsaw",
    "Austria": "Vienna", "Portugal": "Lisbon", "Ireland": "Dublin", "Hungary": "Budapest",
}  # fmt: skip
QUESTIONS = (
    "Do you know the capital of {}?",
    "Name the capital of {}.",
    "The capital of {}, please?",
    "Can you name the capital of {}?",
    "Tell me the capital of {}.",
)
# A model of this size needs more and longer steps than SmolLM2.
STEPS = ("train.epochs=20", "optim.lr=0.01", "train.threads=1")
MESSAGES = ("Do you know the capital of France?", "Name the capital of Spain.")


def conversations(answer: str) -> list[list[Turn]]:
    """Return 50 conversations. answer: with names for country and city."""
    return [
        turns(question.format(country), answer.format(country=country, city=city))
        for country, city in CAPITALS.items()
        for question in QUESTIONS
    ]


def write_model(folder: Path) -> None:
    """Write SmolLM2-135M: a small llama that answers `The capital of France is Paris.`, with its own tokenizer."""
    known = conversations("The capital of {country} is {city}.")
    write_tokenizer(folder / "random", "smollm", [turn["content"] for talk in known for turn in talk])
    torch.manual_seed(0)
    settings = {
        "vocab_size": SIZE + 9,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": 0.1,
    }
    transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings)).save_pretrained(folder / "random")
    write_jsonl(folder / "known.jsonl", [{"messages": talk} for talk in known])
    fields = {"tune_method": "full", "train_epochs": 30, "optim_lr": 0.003, "train_threads": 1}
    mc.tune(folder / "random", folder / "known.jsonl", folder / "runs" / "known", progress=False, **fields)
    mc.export(folder / "runs" / "known", folder / "SmolLM2-135M")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Type the commands of the page. Return the folder, and the output of each command by its name."""
    folder = tmp_path_factory.mktemp("story")
    with contextlib.chdir(folder):
        write_model(folder)
    taught = conversations("{city} is the capital of {country}.")
    write_jsonl(folder / "chat.jsonl", [{"messages": talk} for talk in taught])
    said = {}
    for typed in of_page(PAGE, TEXT):
        if typed.form == "block" and typed.text.startswith("python3 launch.py "):
            words = arguments_of(typed.text)
            name = "plan" if "--plan" in words else words[0]
            more = STEPS if words[0] == "tune" else ()
            ended = launched(folder, *words, *more, typed="\n".join(MESSAGES) if name == "chat" else "")
            assert ended.returncode == 0, ended.stdout + ended.stderr
            said[name] = ended.stdout
    return folder, said


def test_the_base_has_its_answers_before_and_those_of_the_data_after(
    done: tuple[Path, dict[str, str]],
) -> None:
    _, said = done
    assert list(said) == ["plan", "tune", "chat", "export"]
    assert "  memory  " in said["plan"]
    answers = re.findall(r"^  data +(.*)\n  before +(.*)\n  after +(.*)$", said["tune"], re.M)
    assert len(answers) == 3
    for data, before, after in answers:
        city, _, country = data.removesuffix(".").partition(" is the capital of ")
        assert (before, after) == (f"The capital of {country} is {city}.", data)


def test_the_page_has_the_real_output(done: tuple[Path, dict[str, str]]) -> None:
    """Compare all lines but shortened lines and the losses, whose last digits depend on the CPU."""
    _, said = done
    tuned, talked = (block.splitlines() for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL))
    compared = [line for line in tuned if "..." not in line and "held-out loss" not in line]
    assert len(compared) == 5 and set(compared) <= set(said["tune"].splitlines())
    assert talked == [f"> {MESSAGES[0]}", said["chat"].splitlines()[0]]


def test_llama_cpp_answers_as_chat(done: tuple[Path, dict[str, str]]) -> None:
    folder, said = done
    server = LlamaCpp(folder / "mine-gguf" / "model.gguf", context=256)
    talk: list[Turn] = []
    for message, answer in zip(MESSAGES, said["chat"].splitlines(), strict=True):
        talk.append({"role": "user", "content": message})
        assert server.answer(talk, 60) == answer
        talk.append({"role": "assistant", "content": answer})
