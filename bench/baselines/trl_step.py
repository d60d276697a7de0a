"""Time one DPO run of trl with PEFT in a separate process; print one JSON object.

    python bench/baselines/trl_step.py --folder FOLDER --shape SmolLM2-135M --mode trl --threads 2 --steps 5

The folder is prepared by peft_step.py. A step is the loss of trl's DPOTrainer, backward, clip to norm 1, fused AdamW,
gradients set to None. `trl` has trl's defaults: gradient checkpointing, and the reference is computed in each step
without adapters. `trl-fast` keeps the activations, knows the reference before the first step, and compiles each layer.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import peft
import tokenizers
import torch
import transformers
import trl
from safetensors.torch import load_file
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tune_options
from rank_memory import memory_of
from shapes import peak_rss_mib
from tune_shapes import ALPHA, LR, RANK, TuneShape
from turns import turns
from workload import BETA, BETAS, CLIP, EPS, answers_batch, forget_peak, tuning_row


def make_trainer(s: TuneShape, a: argparse.Namespace, out: str) -> Any:
    """Return a trainer of the base with the prepared adapters. The trainer needs a tokenizer and a data set."""
    base = transformers.AutoModelForCausalLM.from_pretrained(
        a.folder / "base", dtype=torch.float32, attn_implementation="sdpa"
    )
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, "[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="[UNK]", pad_token="[UNK]"
    )
    settings = DPOConfig(
        out, beta=BETA, report_to=[], use_cpu=True, bf16=False, gradient_checkpointing=a.mode == "trl"
    )
    trainer = DPOTrainer(
        base,
        args=settings,
        train_dataset=datasets.Dataset.from_list([{"prompt": "a", "chosen": " a", "rejected": " b"}]),
        processing_class=tokenizer,
        peft_config=peft.LoraConfig(
            r=RANK, lora_alpha=ALPHA, target_modules=s.targets, task_type="CAUSAL_LM"
        ),
    )
    peft.set_peft_model_state_dict(
        trainer.model, load_file(a.folder / "adapter" / "adapter_model.safetensors")
    )
    if a.mode == "trl":
        trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
    else:
        trainer.precompute_ref_logps = True
        for layer in base.model.layers:
            layer.compile()
    trainer.model.train()
    return trainer


def inputs_of(s: TuneShape, step: int) -> dict[str, torch.Tensor]:
    """Return the arrays of trl's collator, which has all chosen answers before the rejected ones."""
    batch = answers_batch(s, step)
    order = [*range(0, s.B, 2), *range(1, s.B, 2)]
    ids, answer = batch["inputs"][order].astype(np.int64), np.zeros((s.B, s.T), np.int64)
    answer[:, 1:] = batch["targets"][order, :-1] >= 0
    return {
        "input_ids": torch.from_numpy(ids),
        "attention_mask": torch.ones((s.B, s.T), dtype=torch.int64),
        "completion_mask": torch.from_numpy(answer),
    }


def with_reference(trainer: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Add the log-probabilities of the base, as trl's precompute_ref_log_probs does."""
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100)
    model = trainer.model
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad(), model.disable_adapter():
        sums = model(**given, labels=labels, fused_lm_head=True, use_cache=False).log_probs.sum(1)
    chosen, rejected = sums.chunk(2)
    return {**inputs, "ref_chosen_logps": chosen, "ref_rejected_logps": rejected}


def measure(s: TuneShape, a: argparse.Namespace, out: str) -> dict[str, Any]:
    """Run the steps; time and memory are measured after the warm-up."""
    trainer = make_trainer(s, a, out)
    model, count = trainer.model, a.warmup + a.steps
    batches = [inputs_of(s, step) for step in range(count)]
    if trainer.precompute_ref_logps:
        batches = [with_reference(trainer, one) for one in batches]
    weights = {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
    now = tune_options.clock(a.threads)
    losses, seconds, most = [], [], memory_of("self")
    loaded = peak_rss_mib()
    for step in turns(count, a.in_turn):
        if step == a.warmup:
            forget_peak()
        start = now()
        optimizer.zero_grad(set_to_none=True)
        loss = trainer.compute_loss(model, batches[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        optimizer.step()
        seconds.append(now() - start)
        losses.append(float(loss.detach()))
        most = max(most, memory_of("self"), key=lambda one: one["pss"])
    if a.save is not None:
        np.savez(a.save, **{name: p.detach().numpy() for name, p in weights.items()})
    return {
        "name": f"trl {trl.__version__} ({'defaults' if a.mode == 'trl' else 'layers, reference known'})",
        **tuning_row(s, seconds, a.warmup, losses, loaded, most["pss"]),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}, peft {peft.__version__}",
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = tune_options.parser(__doc__, 2)
    p.add_argument("--mode", choices=("trl", "trl-fast"), default="trl")
    return p.parse_args()


def main() -> int:
    """Measure and print."""
    a = parse()
    torch.set_num_threads(a.threads)
    with tempfile.TemporaryDirectory() as out:
        row = measure(tune_options.shape_of(a), a, out)
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
