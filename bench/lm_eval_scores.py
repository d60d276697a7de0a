"""Time log-likelihoods of the lm-evaluation-harness classes of mudd_core and transformers; print JSON.

    python bench/lm_eval_scores.py --program hf --folder FOLDER --batch 8 --workload choices --threads 2 --steps 3

Both programs score the same token ids in `_loglikelihood_tokens`. A step has all tokens of all requests, context and
continuation, however the program computes them.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from shapes import SHAPES, Shape, peak_rss_mib
from turns import turns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
Request = tuple[None, list[int], list[int]]
WORKLOADS = ("rolling", "answers", "choices", "letters")


def requests_of(workload: str, s: Shape) -> list[Request]:
    """Return the requests of a step.

    rolling: windows of T tokens, each predicted. answers: 16 contexts of T - 64 tokens with an answer of 64. choices: 4
    such contexts with 4 choices of 16 tokens. letters: 16 contexts of T / 8 tokens with 4 choices of one token.
    """
    rng = np.random.default_rng(7)

    def ids(count: int) -> list[int]:
        return [int(one) for one in rng.integers(300, s.V, count)]

    if workload == "rolling":
        return [(None, ids(1), ids(s.T)) for _ in range(8)]
    if workload == "answers":
        return [(None, ids(s.T - 64), ids(64)) for _ in range(8)]
    contexts, length, choice = (4, s.T - 64, 16) if workload == "choices" else (16, s.T // 8, 1)
    return [
        (None, context, ids(choice)) for context in (ids(length) for _ in range(contexts)) for _ in range(4)
    ]


def prepare(folder: Path, s: Shape) -> None:
    """Write a llama of the shape with random weights, and a tokenizer that is not used."""
    import torch
    import transformers

    from mudd_core.data.tokenizers.bpe_training import train_bpe

    settings = transformers.LlamaConfig(
        vocab_size=s.V, hidden_size=s.D, intermediate_size=s.F, num_hidden_layers=s.L, num_attention_heads=s.H,
        num_key_value_heads=s.H, max_position_embeddings=s.T, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    torch.manual_seed(1)
    transformers.LlamaForCausalLM(settings).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes(train_bpe([b"a bench scores token ids " * 9], 1, 300))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))


def model_of(a: argparse.Namespace) -> Any:
    """Return the model class of the harness for a program."""
    logging.disable(logging.WARNING)
    if a.program == "mudd":
        from mudd_core import lm_eval, set_num_threads

        found = lm_eval.Model(a.folder, batch_size=a.batch)
        set_num_threads(a.threads)
        return found
    import torch
    from lm_eval.models.huggingface import HFLM

    torch.set_num_threads(a.threads)
    return HFLM(pretrained=str(a.folder), device="cpu", dtype="float32", batch_size=a.batch)


def main() -> None:
    """Score the workload once a step, and print the times and the scores."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program", choices=("mudd", "hf"), required=True)
    p.add_argument("--folder", type=Path, required=True)
    p.add_argument("--shape", choices=tuple(SHAPES), default="55M")
    p.add_argument("--workload", choices=WORKLOADS, required=True)
    p.add_argument("--batch", type=int, default=0, help="sequences; 0: the program's choice (mudd)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--in-turn", action="store_true")
    a = p.parse_args()
    os.environ["TQDM_DISABLE"] = "1"
    requests = requests_of(a.workload, SHAPES[a.shape])
    model = model_of(a)
    model._loglikelihood_tokens(requests[:1], disable_tqdm=True)
    seconds, scores = [], []
    for _ in turns(a.steps, a.in_turn):
        begin = time.perf_counter()
        scores = model._loglikelihood_tokens(requests, disable_tqdm=True)
        seconds.append(time.perf_counter() - begin)
    tokens = sum(len(context) + len(targets) for _, context, targets in requests)
    row = {
        "program": a.program,
        "batch": a.batch,
        "workload": a.workload,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / float(np.median(seconds)),
        "peak_rss_mib": peak_rss_mib(),
        "scores": [score for score, _ in scores],
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
