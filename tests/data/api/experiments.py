"""A user's file of experiments: keywords of fields, plans, comparisons, exports and fine-tuning, for a type checker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, assert_type

import mudd_core as mc

Schedule = Literal["cosine", "linear"]
SEEDS: Sequence[int] = (0, 1)


def config_for(seed: int, schedule: Schedule, text: Path) -> mc.Config:
    """Keywords with the types of their fields: a count, a float, a choice, a path, a switch."""
    config = mc.load_config(
        "tiny.py",
        train_steps=20,
        train_seq_len=32,
        train_seed=seed,
        train_save_policy="best",
        optim_lr=3e-4,
        optim_schedule=schedule,
        data_path=text,
        data_tokenizer="bytes",
        log_batches=True,
    )
    assert_type(config, mc.Config)
    return config.replace(name=f"{schedule}-{seed}", model_n_layer=2, eval_max_batches=1)


def changed(config: mc.Config) -> mc.Config:
    """The other forms of overrides."""
    config = config.replace("optim.lr", 1e-3)
    config = config.replace({"train.steps": 10, "model": {"d_ff": 64}}, optim_warmup_steps=2)
    return config.replace(train_batch_size=8, train_precision="bf16", tune_method="full")


def fits(config: mc.Config) -> bool:
    """The plan of a run, alone and by two ranks."""
    plan, of_two = mc.plan(config), mc.plan(config, "runs/planned", ranks=2, node_memory=16.0)
    steps: int | None = plan.steps
    parts: Mapping[str, int] = plan.memory
    print(plan.parameters, steps, plan.flops_per_step, parts["weights"], plan.seconds)
    return plan.fits and of_two.peak_bytes < plan.peak_bytes + 2**30


def train_all(text: Path, folder: Path) -> list[Path]:
    """A run for each seed."""
    folders: list[Path] = []
    for seed in SEEDS:
        config = config_for(seed, "cosine", text)
        assert fits(config)
        with mc.Trainer(config, folder / config.name) as trainer:
            summary = trainer.fit(progress=False)
        print(summary.step, summary.val_loss)
        folders.append(folder / config.name)
    return folders


def compared(folders: Sequence[Path], page: Path) -> int | None:
    """The first step with other values."""
    comparison = mc.compare(*folders)
    comparison.save(page)
    assert_type(comparison.runs["A"], Path)
    return comparison.first_differences["B"]


def handed_on(folder: Path, target: Path) -> str:
    """A folder for transformers."""
    exported = mc.export(mc.load_run(folder), target, step="best")
    assert_type(exported.folder, Path)
    return f"{exported.system} {exported.step}: {exported.text}"


def tuned(base: Path, chat: Path) -> list[str]:
    """Fine-tuning with adapters."""
    result = mc.tune(base, chat, "runs/mine", lora_rank=8, optim_lr=2e-4, progress=False)
    print(result.choices, result.losses, result.summary.loss, result.run.step)
    mc.export(result.run, "adapter", form="adapter", base="SmolLM2-135M")
    return [f"{answer.prompt}{answer.before} {answer.after}" for answer in result.answers]
