"""Inputs of the tests of the command tune: a small llama with a chat template, and conversations."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from chat_cases import tokenizer_json, turns, write_folder, write_jsonl
from hf_models import SHARED, transformers


def write_given(folder: Path, conversations: int, unused_ids: int = 0) -> Path:
    """Write base, in several safetensors files, and chat.jsonl. unused_ids: ids of the model beyond the tokenizer's."""
    write_folder(folder / "base", "chatml")
    size = 1 + max(token["id"] for token in json.loads(tokenizer_json())["added_tokens"])
    torch.manual_seed(0)
    settings = {**SHARED, "vocab_size": size + unused_ids, "max_position_embeddings": 128}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**settings))
    model.save_pretrained(folder / "base", max_shard_size="20KB")
    assert len(list((folder / "base").glob("*.safetensors"))) > 1
    write_jsonl(
        folder / "chat.jsonl",
        [{"messages": turns(f"the cat {n}", f"end {n}")} for n in range(conversations)],
    )
    return folder
