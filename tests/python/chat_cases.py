"""Templates, tokenizers and random conversations for the tests of chat data."""

from __future__ import annotations

import functools
import json
import random
from pathlib import Path

from mudd_core.config import Config, load_config
from mudd_core.data.tokenizers.bpe_training import train_bpe

Turn = dict[str, str]

# Chat templates of several model families. MARK and END become generation marks, or nothing.
_TEMPLATES = {
    "chatml": (
        "{% for t in messages %}{{ '<|im_start|>' + t['role'] + '\\n' }}{% if t['role'] == 'assistant' %}MARK"
        "{{ t['content'] + '<|im_end|>\\n' }}END{% else %}{{ t['content'] + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for t in messages %}{{ '<|start_header_id|>' + t['role'] + '<|end_header_id|>\\n\\n' }}"
        "{% if t['role'] == 'assistant' %}MARK{{ t['content'] | trim + '<|eot_id|>' }}END"
        "{% else %}{{ t['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
    ),
    "qwen": (
        "{%- if messages[0].role == 'system' %}\n"
        "    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}\n"
        "{%- else %}\n    {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}\n{%- endif %}\n"
        "{%- for t in messages %}\n    {%- if t.role == 'user' or (t.role == 'system' and not loop.first) %}\n"
        "        {{- '<|im_start|>' + t.role + '\\n' + t.content + '<|im_end|>\\n' }}\n"
        "    {%- elif t.role == 'assistant' %}\n        {{- '<|im_start|>assistant\\n' }}\n        MARK\n"
        "        {{- t.content + '<|im_end|>\\n' }}\n        END\n    {%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n"
    ),
    "gemma": (
        "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for t in messages %}{% if (t['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
        "{% if t['role'] == 'assistant' %}{{ '<start_of_turn>model\\n' }}MARK"
        "{{ t['content'] | trim + '<end_of_turn>\\n' }}END{% else %}"
        "{{ '<start_of_turn>' + t['role'] + '\\n' + t['content'] | trim + '<end_of_turn>\\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
    ),
    "zephyr": (
        "{% for t in messages %}\n{% if t['role'] == 'user' %}\n{{ '<|user|>\\n' + t['content'] + eos_token }}\n"
        "{% elif t['role'] == 'system' %}\n{{ '<|system|>\\n' + t['content'] + eos_token }}\n"
        "{% elif t['role'] == 'assistant' %}\n{{ '<|assistant|>\\n' }}MARK{{ t['content'] + eos_token + '\\n' }}END"
        "{% endif %}\n{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
    ),
}
FORMS = tuple(_TEMPLATES)
_SPECIAL = (
    "<|begin_of_text|>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    "<start_of_turn>", "<end_of_turn>",
)  # fmt: skip
_WORDS = (
    "cat", "the", "Zug", "fährt", "漢字", "👩‍💻", "é", " ", "\n", "\n\n", "\t", "return", "{x}", "<|im_start|>",
    "naïve", "1.5", "...", "ß", "\u00a0", "end",
)  # fmt: skip


def template(form: str, *, marks: bool) -> str:
    """Return the template of a form. marks: put {% generation %} around the text that the loss includes."""
    tags = (
        ("{%- generation %}", "{%- endgeneration %}")
        if form == "qwen"
        else ("{% generation %}", "{% endgeneration %}")
    )
    begin, end = tags if marks else ("", "")
    return _TEMPLATES[form].replace("MARK", begin).replace("END", end)


@functools.cache
def tokenizer_json() -> bytes:
    """Return a byte-level BPE of 400 tokens with the special tokens of all forms."""
    text = " ".join(w for w in _WORDS if w not in _SPECIAL) + " user assistant system\n"
    data = json.loads(train_bpe([text.encode() * 8], 1, 400))
    first = max(data["model"]["vocab"].values()) + 1
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    data["added_tokens"] += [{"id": first + i, "content": name, **flags} for i, name in enumerate(_SPECIAL)]
    return json.dumps(data).encode()


def write_folder(folder: Path, form: str, *, marks: bool = False) -> Path:
    """Write a tokenizer's folder with a chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    names = {
        "bos_token": "<|begin_of_text|>",
        "eos_token": "</s>",
        "chat_template": template(form, marks=marks),
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **names})
    )
    return folder


def turns(*contents: str) -> list[Turn]:
    """Return alternating turns of user and assistant."""
    return [
        {"role": ("user", "assistant")[at % 2], "content": content} for at, content in enumerate(contents)
    ]


def chat_config(folder: Path, data: Path, *words: str) -> Config:
    """Return a config for a file of conversations, with the tokenizer of folder/tokenizer."""
    return load_config(
        "tiny.py",
        [
            "data.pipeline=chat",
            f"data.path={data}",
            f"data.tokenizer={folder}/tokenizer",
            f"data.cache_dir={folder}/cache",
            "model.d_model=16",
            "model.n_layer=1",
            "model.n_head=2",
            "model.d_ff=32",
            "train.steps=6",
            "train.batch_size=4",
            "train.seq_len=64",
            "train.eval_every=3",
            "train.save_every=2",
            "train.logical_shards=4",
            "train.threads=1",
            *words,
        ],
    )


def random_chat(draw: random.Random) -> list[Turn]:
    """Return turns with an answer: unicode, blanks at the edges, empty system turns, a role twice in a row."""

    def text(least: int) -> str:
        words = [draw.choice(_WORDS) for _ in range(draw.randint(least, 6))]
        return draw.choice(("", " ", "\n")) * (draw.random() < 0.3) + draw.choice(("", " ")).join(words)

    turns = [{"role": "system", "content": text(0)}] if draw.random() < 0.3 else []
    role = "user"
    for _ in range(draw.randint(1, 5)):
        turns.append(
            {"role": role, "content": text(0 if role == "user" else 1) + "x" * (role == "assistant")}
        )
        role = role if draw.random() < 0.1 else "assistant" if role == "user" else "user"
    if all(turn["role"] != "assistant" for turn in turns):
        turns.append({"role": "assistant", "content": text(1) + "."})
    return turns


def write_jsonl(file: Path, records: list[dict[str, object]]) -> Path:
    """Write one object per line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return file
