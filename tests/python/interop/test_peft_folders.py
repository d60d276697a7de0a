"""Adapters as folders of PEFT, written and read, checked against peft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from hf_models import V, make, transformers
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config, LoraConfig, OptimConfig, TrainConfig, TuneConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.lora import is_adapter, merged_tensors
from mudd_core.interop import export_original
from mudd_core.interop.peft_folder import SETTINGS, TENSORS, adapter_tensors, read_adapter
from mudd_core.run.build.base import Base
from mudd_core.tools.export_weights.adapter import adapted_model, base_tensors, write_adapter
from mudd_core.tools.export_weights.held_model import held_model
from mudd_core.tools.export_weights.probe import difference, probe_logits
from rank_runs import batch_of
from reference import bounds

peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core"),
    # peft calls transformers with these arguments.
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
]

Array = np.ndarray[Any, np.dtype[Any]]
IDS = np.arange(40).reshape(2, 20) * 7 % V
# Type: targets, and the number of modules that PEFT finds for them.
TYPES = {
    "llama_tied": ("all", 14),
    "llama_biases": ("q,v,down", 6),
    "qwen2": ("blocks.1.attn.*,down", 6),
    "qwen3": ("all", 14),
    "mistral": ("k,o", 4),
    "gemma3": ("all", 14),
    "smollm3": ("all", 14),
    "phi3": ("all", 8),
    "olmo2": ("all", 14),
    "olmo3": ("q,blocks.1.attn.*,down", 7),
    "mixtral": ("all", 8),
    "qwen3_moe": ("all", 8),
    "gpt2": ("up,blocks.*.attn.o", 4),
    "gpt2_other": ("q,v,blocks.1.attn.k,down", 4),
    "gpt_neox": ("all", 8),
}


def adapted(name: str, folder: Path, lora: LoraConfig) -> mc.Model:
    """Return the model of a type, saved as the base in the folder, with adapters that change its logits."""
    make(name, folder)
    base = mc.load(folder).model
    model = mc.Model(base.config, lora=lora, seed=1)
    model.normalize = base.normalize
    whole = {key: np.array(value) for key, value in base.parameters.items()}
    for key, value in whole.items():
        model.set_parameter(key, value)
    layers = model.store.adapters.names
    kept = {f"{layer}.w": whole[f"{layer}.w"] for layer in layers} if lora.init == "pissa" else {}
    Base(folder, "", 0, kept).settle(model, fresh=True)
    rng = np.random.default_rng(2)
    for layer in sorted(layers):
        for factor in "ab":
            key = f"{layer}.lora_{factor}"
            old = model.parameters[key]
            model.set_parameter(key, old + rng.normal(size=old.shape).astype(np.float32) * 0.1)
    return model


def adapter_difference(folder: Path, model: mc.Model) -> tuple[float, float]:
    """Compare a written adapter on a model's base with the model, by probe.difference."""
    base = base_tensors(model.store, model.parameters)
    again = adapted_model(folder, model.config, base)
    return difference(probe_logits(again), probe_logits(model))


def merged_model(model: mc.Model) -> mc.Model:
    return held_model(model.config, merged_tensors(model.parameters, model.store))


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


@pytest.mark.parametrize("name", TYPES)
def test_peft_loads_what_is_written(name: str, tmp_path: Path) -> None:
    targets, count = TYPES[name]
    model = adapted(name, tmp_path / "base", LoraConfig(rank=5, alpha=8.0, targets=targets, dropout=0.25))
    assert write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {}) == 2 * count
    assert adapter_difference(tmp_path / "out", model)[0] == 0.0
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.lora_dropout) == (5, 8, 0.25)
    assert config.fan_in_fan_out == name.startswith("gpt2") and config.task_type == "CAUSAL_LM"
    assert sum(isinstance(one, peft.tuners.lora.LoraLayer) for one in loaded.modules()) == count
    assert near(logits(loaded), model.logits(IDS))
    merged = logits(loaded.merge_and_unload())
    assert near(merged_model(model).logits(IDS), merged)
    weights = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base").state_dict()
    assert any(not np.array_equal(merged_w, weights[key].numpy()) for key, merged_w in written(model).items())
    # Finds the base by its name.
    again = peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert near(logits(again), model.logits(IDS))


def written(model: mc.Model) -> dict[str, Array]:
    """Return the merged weights by the names of transformers."""
    return export_original("hf", merged_model(model))[1]


def test_pissa_becomes_an_adapter_of_the_base_as_it_was(tmp_path: Path) -> None:
    lora = LoraConfig(rank=3, alpha=6.0, init="pissa")
    model = adapted("qwen3", tmp_path / "base", lora)
    assert write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {}) == 28
    far, largest = adapter_difference(tmp_path / "out", model)
    assert far <= bounds.LOGITS * largest
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, config.init_lora_weights) == (6, 12, True)
    assert near(logits(loaded), model.logits(IDS)) and near(merged_model(model).logits(IDS), logits(loaded))


def test_a_rank_above_the_width(tmp_path: Path) -> None:
    model = adapted("llama_tied", tmp_path / "base", LoraConfig(rank=40, alpha=13.5, targets="q,up"))
    write_adapter(tmp_path / "out", model, str(tmp_path / "base"), {})
    loaded = theirs(tmp_path / "base", tmp_path / "out")
    assert loaded.peft_config["default"].lora_alpha == 13.5 and near(logits(loaded), model.logits(IDS))


def test_one_rank_for_all_modules_is_refused_for_a_joint_matrix(tmp_path: Path) -> None:
    model = adapted("gpt2", tmp_path / "base", LoraConfig(rank=2, targets="all"))
    weights = {name: value for name, value in model.parameters.items() if is_adapter(name)}
    told = r"blocks.0.attn.q, which is a part of transformer.h.0.attn.c_attn there; add --merged to write"
    with pytest.raises(UserError, match=told):
        adapter_tensors(model.config, weights, has_patterns=False)


@pytest.mark.parametrize("targets", ["k", "q,v"])
@pytest.mark.parametrize("name", ["gpt2", "phi3", "gpt_neox"])
def test_adapters_before_training_are_read_back(name: str, targets: str, tmp_path: Path) -> None:
    """B is zero, so its rows do not show the layers."""
    make(name, tmp_path / "base")
    base = mc.load(tmp_path / "base").model
    model = mc.Model(base.config, lora=LoraConfig(rank=3, alpha=4.5, targets=targets), seed=1)
    for key, value in base.parameters.items():
        model.set_parameter(key, value)
    write_adapter(tmp_path / "theirs", model, "base", {})
    again = read(tmp_path)
    assert np.array_equal(again.logits(IDS), model.logits(IDS))
    assert near(logits(theirs(tmp_path / "base", tmp_path / "theirs")), model.logits(IDS))


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


def loss_of(model: Any, batch: dict[str, Array]) -> Any:
    found = model(torch.tensor(batch["inputs"])).logits
    targets = torch.tensor(batch["targets"]).reshape(-1).long()
    return torch.nn.functional.cross_entropy(found.reshape(-1, V), targets, ignore_index=-1)


LISTS = {
    "llama_tied": ["q_proj", "v_proj", "down_proj"],
    "llama_biases": ["model.layers.1.self_attn.o_proj", "up_proj"],
    "qwen2": "all-linear",
    "gpt2": ["c_fc", "mlp.c_proj"],
    "mixtral_plain": ["k_proj", "o_proj"],
    "qwen3_moe": ["q_proj", "v_proj"],
}


@pytest.mark.parametrize("name", LISTS)
def test_folders_of_peft_are_read_and_written_back(name: str, tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, target_modules=LISTS[name], fan_in_fan_out=name == "gpt2")
    ours = read(tmp_path)
    assert ours.lora is not None and (ours.lora.rank, ours.lora.alpha) == (4, 6.0)
    assert ours.lora.targets.startswith("all") == (name == "qwen2")
    assert near(ours.logits(IDS), logits(model.eval()))
    write_adapter(tmp_path / "again", ours, "base", {})
    files = [safetensors.load_file(tmp_path / folder / TENSORS) for folder in ("theirs", "again")]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(value, files[1][key]) for key, value in files[0].items())
    config = run_config(ours)
    batch = batch_of(config, 0)
    loss, gradients = ours.loss_and_gradients(batch)
    want = loss_of(model, batch)
    want.backward()
    assert abs(loss - want.item()) <= bounds.LOSS * want.item()
    theirs = adapter_tensors(ours.config, gradients)
    for key, value in parameters_of(model).items():
        far = np.abs(theirs[key] - value.grad.numpy()).max()
        assert far <= bounds.GRADIENT * max(np.abs(value.grad.numpy()).max(), 1e-3), (key, far)


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


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("llama_tied", {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": True}),
        ("qwen3", {"target_modules": "all-linear", "r": 40}),  # above the width
    ],
)
def test_twenty_updates_are_those_of_peft(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, **settings)
    ours = read(tmp_path)
    config = run_config(ours)
    engine = Engine(config, ours)
    optim, weights = config.optim, parameters_of(model)
    adamw = torch.optim.AdamW(
        weights.values(), lr=optim.lr, betas=(optim.beta1, optim.beta2), weight_decay=optim.weight_decay
    )
    for step in range(20):
        batch = batch_of(config, step)
        loss = engine.train_step(step, optim.lr, batch).loss
        adamw.zero_grad()
        want = loss_of(model, batch)
        want.backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), optim.clip)
        adamw.step()
        # PyTorch computes in float32 too, with its sums in another order.
        assert abs(loss - want.item()) <= 1e-4, step
    trained = {name: value for name, value in ours.parameters.items() if is_adapter(name)}
    for key, value in adapter_tensors(ours.config, trained).items():
        want = weights[key].detach().numpy()
        # PyTorch computes in float32 too, with its sums in another order.
        assert np.linalg.norm(value - want) <= 5e-5 * np.linalg.norm(want), key


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_adapters_in_16_bits_are_read(kind: str, tmp_path: Path) -> None:
    model = from_peft("qwen3", tmp_path, target_modules=["q_proj"])
    weights = {name: value.detach().to(getattr(torch, kind)) for name, value in parameters_of(model).items()}
    safetensors.save_file(weights, tmp_path / "theirs" / TENSORS)
    ours = read(tmp_path)
    tensors = adapter_tensors(
        ours.config, {name: ours.parameters[name] for name in ours.parameters if is_adapter(name)}
    )
    assert all(np.array_equal(tensors[name], value.float().numpy()) for name, value in weights.items())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"use_rslora": True}, "use_rslora: expected none, as adapters are computed here, got True"),
        ({"use_dora": True}, "use_dora: expected none"),
        ({"bias": "lora_only"}, "bias: expected 'none', .*got 'lora_only'"),
        ({"peft_type": "IA3"}, "peft_type: expected 'LORA'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights: .*got 'pissa'; save_pretrained"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern: expected none"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save: expected none, .*got \['lm_head'\]"),
        ({"of_a_later_peft": 3}, "of_a_later_peft: expected none, .*got 3"),
        ({"r": 5}, "expected rank 5"),
        ({"lora_alpha": None}, "lora_alpha"),
        ({"lora_alpha": float("inf")}, "lora_alpha': inf"),
        ({"lora_dropout": -0.5}, "lora_dropout': -0.5"),
    ],
)
def test_settings_that_are_not_computed_are_refused(
    changed: dict[str, Any], told: str, tmp_path: Path
) -> None:
    from_peft("llama_tied", tmp_path, target_modules=["q_proj"])
    file = tmp_path / "theirs" / SETTINGS
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))
    damaged = not changed.keys().isdisjoint({"r", "lora_alpha", "lora_dropout"})
    with pytest.raises(FormatError if damaged else UserError, match=told):
        read(tmp_path)


def test_adapters_of_another_base_and_damaged_files_are_refused(tmp_path: Path) -> None:
    from_peft("llama_tied", tmp_path, target_modules=["q_proj", "v_proj"])
    others = {"llama_biases": "q has 16 outputs|has 24 outputs", "gpt2": "is no linear layer of the base"}
    for name, told in others.items():
        make(name, tmp_path / name)
        config = mc.load(tmp_path / name).model.config
        with pytest.raises(UserError, match=told):
            read_adapter(tmp_path / "theirs", config, "[tune] --adapter")
    file = tmp_path / "theirs" / TENSORS
    weights = safetensors.load_file(file)
    first = next(iter(weights))
    for changed, error, told in (
        ({first: None}, FormatError, "one of its two tensors"),
        ({"base_model.model.lm_head.lora_magnitude_vector": torch.ones(3)}, UserError, "is of no adapter"),
        ({first: torch.full_like(weights[first], float("nan"))}, FormatError, "expected finite numbers"),
    ):
        made = {name: value for name, value in {**weights, **changed}.items() if value is not None}
        safetensors.save_file(made, file)
        with pytest.raises(error, match=told):
            read(tmp_path)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FormatError):
        read(tmp_path)
    file.rename(file.with_name("adapter_model.bin"))
    with pytest.raises(UserError, match="is a pickle"):
        read(tmp_path)
    with pytest.raises(UserError, match="expected a folder of PEFT"):
        read_adapter(tmp_path / "base", mc.load(tmp_path / "base").model.config, "[tune] --adapter")


JOINT = {"gpt2": "c_attn", "phi3": "gate_up_proj", "gpt_neox": "query_key_value"}


@pytest.mark.parametrize("name", JOINT)
def test_an_adapter_of_a_joint_matrix_is_read_as_one_of_each_layer(name: str, tmp_path: Path) -> None:
    model = from_peft(name, tmp_path, target_modules=[JOINT[name]], fan_in_fan_out=name == "gpt2")
    ours = read(tmp_path)
    assert near(ours.logits(IDS), logits(model.eval()))
    write_adapter(tmp_path / "again", ours, "base", {})
    assert near(logits(theirs(tmp_path / "base", tmp_path / "again")), ours.logits(IDS))


def test_a_joint_matrix_with_a_higher_rank_than_its_layers_is_refused(tmp_path: Path) -> None:
    joint = JOINT["gpt2"]
    from_peft(
        "gpt2",
        tmp_path,
        target_modules=[joint],
        fan_in_fan_out=True,
        rank_pattern={f"transformer.h.{n}.attn.{joint}": 8 for n in range(2)},
        alpha_pattern={f"transformer.h.{n}.attn.{joint}": 12 for n in range(2)},
    )
    with pytest.raises(
        UserError, match=r"c_attn' is 3 layers here \(blocks.0.attn.q, .*of rank 4; merge .*--base"
    ):
        read(tmp_path)
    file = tmp_path / "theirs" / SETTINGS
    settings = {**json.loads(file.read_text()), "alpha_pattern": {}}
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"rank_pattern: expected none, as adapters are computed here, got "):
        read(tmp_path)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("mixtral_plain", "block_sparse_moe.experts.0.w1"),
        ("mixtral_plain", "block_sparse_moe.gate"),
        ("qwen3_moe", "mlp.experts.0.up_proj"),
        ("qwen3_moe", "mlp.gate"),
    ],
)
def test_adapters_of_experts_and_routers_are_refused(name: str, module: str, tmp_path: Path) -> None:
    """PEFT wrote such adapters with version 4 of transformers, which has a layer for each expert and router."""
    from_peft(name, tmp_path, target_modules=["q_proj"])
    file = tmp_path / "theirs" / TENSORS
    start = f"base_model.model.model.layers.0.{module}"
    factors = {f"{start}.lora_A.weight": torch.ones(4, 16), f"{start}.lora_B.weight": torch.ones(24, 4)}
    safetensors.save_file({**safetensors.load_file(file), **factors}, file)
    with pytest.raises(UserError, match=f"{module}' is of a router or an expert, .*--base"):
        read(tmp_path)
