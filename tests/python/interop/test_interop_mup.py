"""mu-Transformer's weights, sequences and gradients against its einsums in its own layouts (docs/maths/mup.md, 1)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save_file

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import Config, LossConfig, OptimConfig, TrainConfig
from mudd_core.engine.model import Model
from mudd_core.interop import export_original, load_original
from mudd_core.run.store.json_files import read_saved_config
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.import_weights import command as import_command

V, L, M, H, D, T = 31, 2, 24, 3, 8, 12
PLAIN: dict[str, Any] = {
    "n_layer": L,
    "d_model": M,
    "d_base": 12,
    "d_head": D,
    "ff_multiple": 4.0,
    "qk_scale": 0.125,
    "sequence_len": T,
    "kv_mqa": False,
    "rotary_base": 10000,
    "attn_act_name": "softmax",
    "ff_act_name": "relu",
    "norm_eps": 1e-5,
    "bos_token_id": 3,
    "eos_token_id": 1,
    "pad_token_id": 1,
    "optim_rule": "mup",
    "dtype": "float32",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "all_options": {
        **PLAIN,
        "kv_mqa": True,
        "ff_act_name": "swiglu",
        "ff_multiple": 2.67,
        "e_norm": True,
        "qk_norm": True,
        "norm_gains": True,
        "norm_gains_type": "scalar",
        "proj_biases": True,
        "pad_token_id": 2,
    },
    "mish": {**PLAIN, "ff_act_name": "mish", "proj_biases": True},
    "vector_gains": {
        **PLAIN,
        "norm_gains": True,
        "ff_act_name": "sqrelu",
        "attn_act_name": "elu",
        "rotary_base": 0,
    },
}


def shapes_of(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    inner = int(c["ff_multiple"] * M)
    wide = 2 * inner if c["ff_act_name"] == "swiglu" else inner
    G = 1 if c["kv_mqa"] else H
    shapes: dict[str, tuple[int, ...]] = {
        "w_e": (V, M),
        "w_u": (M, V),
        "w_aq": (L, M, H, D),
        "w_ak": (L, M, G, D),
        "w_av": (L, M, G, D),
        "w_ao": (L, H, D, M),
        "w_fi": (L, M, wide),
        "w_fo": (L, inner, M),
    }
    if c.get("proj_biases"):
        shapes |= {
            "b_aq": (L, H, D),
            "b_ak": (L, G, D),
            "b_av": (L, G, D),
            "b_ao": (L, M),
            "b_fi": (L, wide),
            "b_fo": (L, M),
            "b_u": (V,),
        }
    if c.get("norm_gains"):
        n = 1 if c.get("norm_gains_type") == "scalar" else M
        shapes |= {"g_a": (L, n), "g_f": (L, n), "g_u": (n,)}
        shapes |= {"g_e": (n,)} if c.get("e_norm") else {}
        shapes |= {"g_aq": (L, n), "g_ak": (L, n)} if c.get("qk_norm") else {}
    return shapes


def weights_of(c: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    made = {name: rng.standard_normal(shape) * 0.4 for name, shape in shapes_of(c).items()}
    return {name: (x + (name[0] == "g")).astype(np.float32) for name, x in made.items()}


def logits_of(c: dict[str, Any], w: Any, x: Any) -> Any:
    """Compute the forward pass as in docs/maths/mup.md, 1.2, on input ids [B, T]."""

    def rms(z: Any, gain: str = "", layer: int | None = None) -> Any:
        y = z / torch.sqrt((z * z).mean(-1, keepdim=True) + c["norm_eps"])
        if gain not in w:
            return y
        return y * (w[gain] if layer is None else w[gain][layer])

    def turned(z: Any) -> Any:  # [B, T, heads, D]
        if not c["rotary_base"]:
            return z
        angle = torch.arange(T, dtype=z.dtype)[:, None] * c["rotary_base"] ** (
            -torch.arange(D // 2) / (D / 2)
        )
        cos, sin = angle.cos()[None, :, None], angle.sin()[None, :, None]
        a, b = z[..., : D // 2], z[..., D // 2 :]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def plus(z: Any, name: str, layer: int) -> Any:
        return z + w[name][layer] if name in w else z

    h = w["w_e"][x]
    h = rms(h, "g_e") if c.get("e_norm") else h
    for n in range(L):
        a = rms(h, "g_a", n)
        q, k, v = (plus(torch.einsum("btm,mhd->bthd", a, w[f"w_a{m}"][n]), f"b_a{m}", n) for m in "qkv")
        if c.get("qk_norm"):
            q, k = rms(q, "g_aq", n), rms(k, "g_ak", n)
        q, k = turned(q), turned(k)
        if c["kv_mqa"]:
            k, v = k.expand_as(q), v.expand_as(q)
        s = torch.einsum("bthd,bjhd->bhtj", q, k) * c["qk_scale"] - 1e30 * torch.triu(torch.ones(T, T), 1)
        p = s.softmax(-1) if c["attn_act_name"] == "softmax" else (F.elu(s) + 1) / T
        o = torch.einsum("bhtj,bjhd->bthd", p, v)
        h = h + plus(torch.einsum("bthd,hdm->btm", o, w["w_ao"][n]), "b_ao", n)
        u = plus(rms(h, "g_f", n) @ w["w_fi"][n], "b_fi", n)
        if c["ff_act_name"] == "swiglu":
            gate, value = u.chunk(2, -1)
            u = F.silu(gate) * value
        elif c["ff_act_name"] == "mish":
            u = F.mish(u)
        else:
            u = F.relu(u) ** (2 if c["ff_act_name"] == "sqrelu" else 1)
        h = h + plus(u @ w["w_fo"][n], "b_fo", n)
    y = rms(h, "g_u") @ w["w_u"]
    return y + w["b_u"] if "b_u" in w else y


def rows(seed: int = 1) -> Any:
    """Return four sequences: full, ended by EOS, ended by padding at once, and with EOS inside."""
    y = np.random.default_rng(seed).integers(3, V, (4, T))
    y[1, 7:] = 1
    y[2, :] = 1
    y[3, 4] = 1
    return y


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_loss_and_gradients_are_the_originals(variant: str) -> None:
    c = VARIANTS[variant]
    arrays, y = weights_of(c), rows()
    w = {name: torch.tensor(x, dtype=torch.float64, requires_grad=True) for name, x in arrays.items()}
    x = np.concatenate([np.full((4, 1), 3), y[:, :-1]], 1)
    logits = logits_of(c, w, torch.tensor(x))
    mask = np.ones((4, T))
    for b in range(4):
        ends = [t for t in range(T) if y[b, t] in (c["eos_token_id"], c["pad_token_id"])]
        mask[b, ends[0] + 1 if ends else T :] = 0
    terms = F.cross_entropy(logits.flatten(0, 1), torch.tensor(y).flatten(), reduction="none")
    want = (terms * torch.tensor(mask).flatten()).sum() / (4 * T)
    want.backward()
    model = load_original("mu_transformer", c, arrays)
    batch = {"tokens": y}
    # PyTorch computes in float32 too, with its sums in another order.
    np.testing.assert_allclose(model.logits(batch), logits.detach().numpy(), rtol=0, atol=3e-5)
    loss, gradients = model.loss_and_gradients(batch)
    # PyTorch computes in float32 too, with its sums in another order.
    assert loss == pytest.approx(float(want.detach()), rel=3e-6) and model.loss(batch) == pytest.approx(loss)
    assert set(gradients) == set(arrays)
    largest = max(float(t.grad.abs().max()) for t in w.values() if t.grad is not None)
    for name, leaf in w.items():
        assert leaf.grad is not None
        exact = leaf.grad.numpy()
        allowed = 2e-5 * max(np.abs(exact).max(), 1e-3 * largest)
        assert gradients[name].shape == exact.shape and np.abs(gradients[name] - exact).max() <= allowed, name


@pytest.mark.parametrize("variant", VARIANTS)
def test_export_is_the_way_back(variant: str) -> None:
    c = VARIANTS[variant]
    arrays = weights_of(c)
    model = load_original("mu_transformer", c, arrays)
    settings, back = export_original("mu_transformer", model)
    assert settings == c and set(back) == set(arrays)
    plain = Model(model.config)
    for name, value in model.parameters.items():
        plain.set_parameter(name, value)
    settings, back = export_original("mu_transformer", plain)
    for name, array in arrays.items():
        assert np.array_equal(back[name], array)
    again = load_original("mu_transformer", settings, back)
    assert again.config == model.config


def test_a_step_moves_every_class_by_its_rate() -> None:
    arrays = weights_of(PLAIN)
    model = load_original("mu_transformer", PLAIN, arrays)
    config = Config(
        model=model.config,
        train=TrainConfig(steps=10, batch_size=4, seq_len=T),
        optim=OptimConfig(
            lr=0.01,
            rule="mup",
            weight_decay=0.0,
            decay="all",
            schedule="linear",
            warmup="floor",
            warmup_steps=2,
            final_lr_ratio=0.5,
        ),
        loss=LossConfig(normalize="all_slots"),
    )
    trainer = mc.Trainer(config, model=model)
    record = trainer.step({"tokens": rows()})
    assert record.lr == pytest.approx(0.005) and record.loss == pytest.approx(
        load_original("mu_transformer", PLAIN, arrays).loss({"tokens": rows()})
    )
    for name, array in model.original_weights().items():
        moved = np.abs(array - arrays[name]).max()
        # The first step of Adam is its rate except for epsilon.
        assert moved == pytest.approx(0.005 if name == "w_e" else 0.0025, rel=1e-3), name


def test_an_import_goes_on_by_the_originals_rates(tmp_path: Path) -> None:
    (tmp_path / "hers").mkdir()
    save_file(weights_of(PLAIN), tmp_path / "hers" / "model.safetensors")
    settings = {**PLAIN, "lr_base": 0.015625, "optim_beta2": 0.98, "wd": 1e-4, "use_iwd": True}
    (tmp_path / "hers" / "config.json").write_text(json.dumps(settings))
    words = [str(tmp_path / "hers"), f"--workdir={tmp_path / 'run'}", "--system=mu_transformer"]
    with pytest.raises(UserError, match=r"has no tokenizer.json; give --tokenizer=FILE"):
        import_command.main(words)
    tokenizer = {"model": {"type": "BPE", "vocab": {"a": 0, "</s>": V - 1}, "merges": []}}
    (tmp_path / "hers.json").write_text(json.dumps({**tokenizer, "added_tokens": []}))
    assert import_command.main([*words, f"--tokenizer={tmp_path / 'hers.json'}"]) == 0
    assert (tmp_path / "run" / "tokenizer.json").is_file()
    optim = read_saved_config(RunFolder(tmp_path / "run")).optim
    assert (optim.rule, optim.decay, optim.decay_mode) == ("mup", "all", "independent")
    assert (optim.lr, optim.beta2, optim.weight_decay) == (0.015625, 0.98, 1e-4)


def test_settings_of_another_type_and_ids_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"d_head: expected a whole number .* got \[1\]"):
        load_original("mu_transformer", {**PLAIN, "d_head": [1]}, weights_of(PLAIN))
    model = load_original("mu_transformer", PLAIN, weights_of(PLAIN))
    with pytest.raises(ValueError, match="32-bit"):
        model.loss({"tokens": rows().astype(np.int64) + 2**32})


def test_old_names_and_what_does_not_fit() -> None:
    arrays = weights_of(PLAIN)
    old = {k: v for k, v in PLAIN.items() if k != "ff_act_name"} | {"act_name": "relu", "act_square": True}
    assert load_original("mu_transformer", old, arrays).config.ff_act_name == "sqrelu"
    with pytest.raises(ValueError, match="act_square"):
        load_original("mu_transformer", {**old, "act_name": "gelu"}, arrays)
    with pytest.raises(ValueError, match=r"w_aq' is missing"):
        load_original("mu_transformer", PLAIN, {k: v for k, v in arrays.items() if k != "w_aq"})
    vectors = {**PLAIN, "norm_gains": True, "qk_norm": True}
    with pytest.raises(ValueError, match="one head only"):
        load_original("mu_transformer", vectors, weights_of(vectors))
    model = load_original("mu_transformer", PLAIN, arrays)
    with pytest.raises(ValueError, match="expected tokens alone"):
        model.loss({"tokens": rows(), "targets": rows()})
    assert dataclasses.replace(model.config, kv_mqa=True).n_kv_head == 1


def test_defaults_of_the_original_and_whole_paths() -> None:
    few = {k: PLAIN[k] for k in ("d_head", "qk_scale", "sequence_len")}  # d_base of 128 affects only rates
    arrays, y = weights_of(PLAIN), {"tokens": rows()}
    c = {**PLAIN, "bos_token_id": None, "pad_token_id": None}
    plain = load_original("mu_transformer", c, arrays)
    paths = {f"Core_0/{name}": array for name, array in arrays.items()}
    other = load_original("mu_transformer", {**few, "ff_act_name": "relu", "eos_token_id": None}, paths)
    assert np.array_equal(other.logits(y), plain.logits(y))
    loss, gradients = other.loss_and_gradients(y)
    assert loss == plain.loss_and_gradients(y)[0] and set(gradients) == set(paths)
    assert (
        load_original("mu_transformer", {**PLAIN, "ff_act_name": "swish"}, arrays).config.ff_act_name
        == "silu"
    )
    for wrong in (
        {"d_model": 48},
        {"n_layer": 9},
        {"n_vocab": 77},
        {"ff_act_name": "softmax"},
        {"attn_act_name": "relu"},
        {"u_init": "vs"},
        {"qk_scale": 0.0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            load_original("mu_transformer", {**PLAIN, **wrong}, arrays)
