"""Small random models with a tokenizer and a chat template, and requests of lm-evaluation-harness for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from chat_cases import write_folder
from hf_models import MODELS, transformers

T = 64
CLASSES = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel", "gemma3": "Gemma3ForCausalLM"}
_WORDS = ["cat", "the", "Zug", "fährt", "漢字", "return", "{x}", "naïve", "1.5", "...", "ß", "end", "é"]


def write_model(folder: Path, name: str, more: int = 0) -> Path:
    """Write a folder of Hugging Face with random weights, whose logits differ clearly, and a chat template.

    more: ids of the model that the tokenizer does not have.
    """
    write_folder(folder, "chatml")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    kind, settings = MODELS[name]
    longest = "n_positions" if name == "gpt2" else "max_position_embeddings"
    settings = {
        **settings,
        longest: T,
        "vocab_size": len(tokenizer) + more,
        "initializer_range": 0.2,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(**settings)
    getattr(transformers, CLASSES[name])(config).save_pretrained(folder)
    return folder


def text(draw: random.Random, count: int) -> str:
    """Return a string of `count` parts."""
    return " ".join(draw.choice(_WORDS) for _ in range(count))


def instances(kind: str, asked: list[tuple[Any, ...]]) -> list[Any]:
    """Return the requests of the harness."""
    from lm_eval.api.instance import Instance

    return [Instance(kind, {}, one, 0) for one in asked]


def choices() -> list[tuple[str, str]]:
    """Return contexts, also an empty one and one that is too long, with three choices each, one of one token."""
    draw = random.Random(0)
    found = []
    for count in (0, 1, 2, 5, 9, 14, 20, 26, 60):
        context = text(draw, count)
        found += [(context, f" {text(draw, draw.randint(1, 3))}") for _ in range(2)] + [(context, " end")]
    return found
