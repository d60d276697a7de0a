"""Models with adapters of PEFT, and the adapters as mudd_core reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import V, make, transformers
from mudd_core.config import Config, OptimConfig, TrainConfig, TuneConfig
from mudd_core.engine.engine import Engine
from mudd_core.interop.peft_folder import read_adapter
from rank_runs import batch_of
from reference import bounds

peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

WARNINGS = [
    pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core"),
    # peft calls transformers with these arguments.
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]
Array = np.ndarray[Any, np.dtype[Any]]
IDS = np.arange(40).reshape(2, 20) * 7 % V
# Type: the name of a matrix that is several layers here.
JOINT = {"gpt2": "c_attn", "phi3": "gate_up_proj", "gpt_neox": "query_key_value"}


def theirs(base: Path, adapter: Path) -> Any:
    """Return the base with the adapter, as PEFT loads them."""
    whole = transformers.AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
    return peft.PeftModel.from_pretrained(whole, adapter).eval()


def logits(model: Any) -> Array:
    with torch.no_grad():
        found: Array = model(torch.tensor(IDS)).logits.numpy()
    return found


def near(got: Array, want: Array, widened: float = 1.0) -> bool:
    return bool(np.abs(got - want).max() <= widened * bounds.LOGITS * np.abs(want).max())


def from_peft(name: str, folder: Path, **settings: Any) -> Any:
    """Write a base of a type to folder/base and random PEFT adapters on it to folder/theirs; return PEFT's model."""
    base = make(name, folder / "base")
    config = {"r": 4, "lora_alpha": 6, "init_lora_weights": False, "task_type": "CAUSAL_LM", **settings}
    torch.manual_seed(5)
    model = peft.get_peft_model(base, peft.LoraConfig(**config))
    model.save_pretrained(folder / "theirs")
    return model


def read(folder: Path) -> mc.Model:
    """Return the base with the adapters in that folder, as `tune --adapter` reads them."""
    base = mc.load(folder / "base").model
    adapter = read_adapter(folder / "theirs", base.config, "[tune] --adapter")
    model = mc.Model(base.config, lora=adapter.lora)
    for name, value in {**base.parameters, **adapter.weights}.items():
        model.set_parameter(name, value)
    return model


def parameters_of(model: Any) -> dict[str, Any]:
    """Return the tensors of PEFT's adapters by their names in files."""
    return {
        name.replace(".default", ""): value for name, value in model.named_parameters() if "lora_" in name
    }


def run_config(model: mc.Model) -> Config:
    """Return a run of 20 updates on prepared batches."""
    assert model.lora is not None
    return Config(
        model=model.config,
        train=TrainConfig(batch_size=4, seq_len=16, logical_shards=4, threads=1, seed=3),
        optim=OptimConfig(lr=5e-3, weight_decay=0.01, beta2=0.999, clip=0.5),
        tune=TuneConfig(method="lora"),
        lora=model.lora,
    )


def loss_of(model: Any, batch: dict[str, Array]) -> Any:
    found = model(torch.tensor(batch["inputs"])).logits
    targets = torch.tensor(batch["targets"]).reshape(-1).long()
    return torch.nn.functional.cross_entropy(found.reshape(-1, V), targets, ignore_index=-1)


def updated(model: Any, ours: mc.Model, count: int) -> dict[str, Any]:
    """Update PEFT's model and ours with the same batches, and check the losses; return PEFT's adapters by name."""
    config = run_config(ours)
    engine, weights = Engine(config, ours), parameters_of(model)
    optim = config.optim
    adamw = torch.optim.AdamW(
        weights.values(), lr=optim.lr, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay
    )
    for step in range(count):
        batch = batch_of(config, step)
        loss = engine.train_step(step, optim.lr, batch).loss
        adamw.zero_grad()
        want = loss_of(model, batch)
        want.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), optim.clip)
        adamw.step()
        # PyTorch computes in float32 too, with its sums in another order.
        assert abs(loss - want.item()) <= 1e-4, step
    return weights
