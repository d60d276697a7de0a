"""Time one LoRA run of transformers and PEFT in a separate process; print one JSON object.

    python bench/baselines/peft_step.py --folder FOLDER --shape SmolLM2-135M --prepare
    python bench/baselines/peft_step.py --folder FOLDER --shape SmolLM2-135M --mode eager --threads 2 --steps 5

A step is forward with the loss of transformers, backward, clip to norm 1, fused AdamW, gradients set to None. Attention
uses SDPA. bf16: base in bf16, adapters in fp32, autocast. --prepare writes a random base and adapters as PEFT
initializes them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import torch._inductor.config
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tune_options
from rank_memory import memory_of
from shapes import peak_rss_mib
from tune_shapes import ALPHA, LR, RANK, TuneShape
from turns import turns
from workload import BETAS, CLIP, EPS, forget_peak, tuning_batch, tuning_row

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
IGNORED = -100


def prepare(s: TuneShape, a: argparse.Namespace) -> None:
    """Write FOLDER/base and FOLDER/adapter."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{s.kind}Config")(**s.fields)
    base = transformers.AutoModelForCausalLM.from_config(config).to(TYPES[a.precision])
    base.save_pretrained(a.folder / "base")
    settings = peft.LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=s.targets, task_type="CAUSAL_LM")
    peft.get_peft_model(base, settings).save_pretrained(a.folder / "adapter")


def measure(s: TuneShape, a: argparse.Namespace) -> dict[str, Any]:
    """Run the steps; time and memory are measured after the warm-up."""
    base = transformers.AutoModelForCausalLM.from_pretrained(
        a.folder / "base", dtype=TYPES[a.precision], attn_implementation="sdpa"
    )
    model = peft.PeftModel.from_pretrained(base, a.folder / "adapter", is_trainable=True).train()
    weights = {n.replace(".default", ""): p for n, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(weights.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
    run = torch.compile(model) if a.mode == "compile" else model
    # At AVX-512 vectorised loop tails corrupt the heap for gemma-3-270m (PyTorch 2.13).
    torch._inductor.config.cpp.enable_loop_tail_vec = torch.backends.cpu.get_cpu_capability() != "AVX512"
    for layer in base.model.layers if a.mode == "layers" else ():
        layer.compile()
    now = tune_options.clock(a.threads)
    losses, seconds, most = [], [], memory_of("self")
    loaded = peak_rss_mib()
    for step in turns(a.warmup + a.steps, a.in_turn):
        if step == a.warmup:
            forget_peak()
        batch = tuning_batch(s, step, a.counted)
        ids, targets = (torch.from_numpy(batch[name].astype(np.int64)) for name in ("inputs", "targets"))
        targets[targets < 0] = IGNORED
        start = now()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = run(input_ids=ids, labels=targets, shift_labels=targets, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
        optimizer.step()
        losses.append(loss.item())
        seconds.append(now() - start)
        most = max(most, memory_of("self"), key=lambda one: one["pss"])
    if a.save is not None:
        np.savez(a.save, **{name: value.detach().numpy() for name, value in weights.items()})
    return {
        "name": f"peft {peft.__version__} {a.mode}",
        **tuning_row(s, seconds, a.warmup, losses, loaded, most["pss"]),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "versions": f"transformers {transformers.__version__}, torch {torch.__version__}",
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = tune_options.parser(__doc__, 2)
    p.add_argument(
        "--mode",
        choices=("eager", "compile", "layers"),
        default="eager",
        help="layers: each layer compiled, one for all",
    )
    return p.parse_args()


def main() -> int:
    """Prepare, or measure and print."""
    a = parse()
    torch.set_num_threads(a.threads)
    if a.prepare:
        prepare(tune_options.shape_of(a), a)
        return 0
    print(json.dumps(measure(tune_options.shape_of(a), a)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
