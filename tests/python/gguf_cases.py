"""Models, tokenizers and a server of llama.cpp for the tests of GGUF files."""

from __future__ import annotations

import json
import random
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from chat_cases import template
from gguf_models import MODELS, SIZE
from hf_models import transformers
from mudd_core.tools.import_weights import command as import_command

xllamacpp = pytest.importorskip("xllamacpp")
sentencepiece = pytest.importorskip("sentencepiece")

_LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|endoftext|>", "<s>", "<|im_start|>", "<|im_end|>"]
_TEXT = """the cat sat on a mat 'll don't I'VE re-read 123456 3.14 x² naïve Zug fährt 漢字 かな é ß ... -- {x}
return( == ) snake_case CamelCase ÉCOLE ärger https://a.b/c?d=1 ٣٤ ⅷ Ωmega"""
WORDS = [*_TEXT.split(), "\n", "\n\n", "\t", "\u00a0", "\r\n", "👩\u200d💻"]


def lines(count: int, seed: int = 0) -> list[str]:
    """Return random lines: letters of several scripts, numbers, signs and white space."""
    draw = random.Random(seed)
    spaces = ["", " ", "  ", "\t", " "]
    return [
        "".join(draw.choice(spaces) + draw.choice(WORDS) for _ in range(draw.randint(1, 12)))
        for _ in range(count)
    ]


def _pieces(kind: str) -> Any:
    levels = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=kind in ("gpt-2", "smollm"))
    first = {
        "gpt-2": [],
        "smollm": [pre_tokenizers.Digits(individual_digits=True)],
        "qwen2": [pre_tokenizers.Split(Regex(_LETTERS + r"\p{N}" + _REST), "isolated")],
        "dbrx": [pre_tokenizers.Split(Regex(_LETTERS + r"\p{N}{1,3}" + _REST), "isolated")],
    }
    steps = first["dbrx" if kind == "llama-bpe" else kind]
    return pre_tokenizers.Sequence([*steps, levels]) if steps else levels


def byte_level(kind: str, corpus: Sequence[str] = ()) -> bytes:
    """Return the tokenizer.json of a byte-level BPE with a pre-tokenizer of llama.cpp. corpus: default: `lines`."""
    library = Tokenizer(models.BPE(ignore_merges=kind == "llama-bpe"))
    library.pre_tokenizer, library.decoder = _pieces(kind), decoders.ByteLevel()
    if kind == "qwen2":
        library.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library.train_from_iterator(corpus or lines(300, 1), trainer)
    if kind == "llama-bpe":  # as in Llama 3, BOS is added
        library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library.to_str().encode()


def write_sentencepiece(folder: Path, **options: Any) -> Path:
    """Train tokenizer.model as Llama has it. options: of the trainer."""
    (folder / "text").write_text("\n".join(lines(300, 1)))
    settings: dict[str, Any] = {
        "model_type": "bpe",
        "vocab_size": SIZE,
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "tokenizer"), **{**settings, **options}
    )
    return folder / "tokenizer.model"


def write_tokenizer(folder: Path, kind: str, corpus: Sequence[str] = ()) -> None:
    """Write the files of a tokenizer: `llama` is sentencepiece, other kinds are pre-tokenizers of llama.cpp.

    corpus: strings on which a byte-level BPE is trained; default: `lines`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "llama":
        write_sentencepiece(folder)
        names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
        config = {"tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True, **names}
        config["chat_template"] = template("zephyr", marks=False)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)  # writes tokenizer.json
    else:
        (folder / "tokenizer.json").write_bytes(byte_level(kind, corpus))
        names = {"bos_token": "<s>", "eos_token": "<|endoftext|>"}
        config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 3, 2]}))
        config["chat_template"] = template("chatml", marks=False)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))


def make(name: str, folder: Path, scale: float = 0.15) -> None:
    """Save a random model of transformers in a folder. scale: the standard deviation of its weights."""
    kind, settings = MODELS[name]
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, f"{kind}Config")(**settings))
    with torch.no_grad():
        for key, p in model.named_parameters():
            is_gain = p.dim() == 1 and "bias" not in key and not name.startswith("gemma3")  # Gemma adds 1
            p.normal_(1.0 if is_gain else 0.0, scale)
    model.eval().save_pretrained(folder)


def imported(name: str, folder: Path, tokenizer: str = "", scale: float = 0.15) -> Path:
    """Return the run of an imported random model. tokenizer: its kind, as for write_tokenizer."""
    source, run = folder / "hf", folder / "run"
    make(name, source, scale)
    write_tokenizer(source, tokenizer or ("llama-bpe" if name == "llama3" else "gpt-2"))
    assert import_command.main([str(source), f"--workdir={run}"]) == 0
    return run


class LlamaCpp:
    """A server of llama.cpp with one thread and an fp32 cache, for one GGUF file."""

    def __init__(self, file: Path, adapter: Path | None = None, context: int = 64) -> None:
        """context: the number of tokens for which the cache has room."""
        p = xllamacpp.CommonParams()
        p.model.path, p.n_ctx, p.n_parallel, p.warmup, p.fit_params, p.verbosity = (
            str(file),
            context,
            1,
            False,
            False,
            0,
        )
        p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        p.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
        p.use_jinja = True
        if adapter is not None:
            one = xllamacpp.CommonAdapterLoraInfo(str(adapter), 1.0)
            p.lora_adapters = [one]
        self._server = xllamacpp.Server(p)

    def likeliest(self, ids: Sequence[int], count: int = 10) -> dict[int, float]:
        """Return the log-probabilities of the likeliest next tokens."""
        asked = {
            "prompt": [int(i) for i in ids],
            "n_predict": 1,
            "n_probs": count,
            "temperature": 0,
            "cache_prompt": False,
            # The server returns nothing for half a character, so it has to choose a whole one. The probabilities are
            # those before this bias.
            "logit_bias": [[self.ids("a")[-1], 1000]],
        }
        found = self._server.handle_completions(asked)
        [choice] = found["choices"][0]["logprobs"]["content"]
        return {one["id"]: one["logprob"] for one in choice["top_logprobs"]}

    def ids(self, text: str) -> list[int]:
        """Return the ids of text with special tokens."""
        return self._post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"]

    def rendered(self, messages: Sequence[dict[str, str]]) -> str:
        """Return a rendered conversation with the start of an answer."""
        return self._post("/apply-template", messages=messages)["prompt"]

    def answer(self, messages: Sequence[dict[str, str]], count: int) -> str:
        """Return the greedy answer to a conversation, of at most `count` tokens."""
        found = self._server.handle_chat_completions(
            {"messages": list(messages), "temperature": 0, "max_tokens": count}
        )
        return found["choices"][0]["message"]["content"]

    def _post(self, path: str, **asked: Any) -> Any:
        request = urllib.request.Request(
            self._server.listening_address + path,
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


def farthest(server: LlamaCpp, logits: Any, prompts: Sequence[Sequence[int]], count: int = 10) -> float:
    """Return the largest difference of log-probabilities: llama.cpp's likeliest tokens and logits(ids)."""
    far = 0.0
    for prompt in prompts:
        last = np.asarray(logits(np.array([prompt]))[0, -1], np.float64)
        want = last - np.log(np.exp(last - last.max()).sum()) - last.max()
        found = server.likeliest(prompt, count)
        assert len(found) == count
        far = max(far, *(abs(want[i] - value) for i, value in found.items()))
    return far
