"""mu-Transformer (Lingle 2024): its parameter names, stacked layers, and rows of tokens (docs/maths/mup.md, 1.1, 1.5).

Names are the last component of its paths (w_e, w_aq, ...), or the whole paths. The first axis of block tensors is the
layer. A batch is `tokens` [B, T], one right-padded document in each sequence. Inputs are the sequence shifted right
after BOS. Targets up to and including the first EOS or padding have a loss, which is divided by all B * T positions.
Activations that models/mup.py lacks, and act_square with another activation than relu, are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

import numpy as np
import numpy.typing as npt

from mudd_core.base.types import Array, Json, JsonObject
from mudd_core.checkpoint.stored import AnyTensor
from mudd_core.config import OptimConfig
from mudd_core.config.check import model_faults
from mudd_core.config.families.mup import MupConfig
from mudd_core.config.fields import with_fields
from mudd_core.interop.layout import Entry, Index
from mudd_core.interop.settings import Reader, Settings, layers_in, sizes
from mudd_core.interop.system import Shapes, System, as_ids
from mudd_core.models.mup import original_name
from mudd_core.programs.mu_transformer.keys_values import MODEL_KEYS, activation

_ALL = slice(None)
_FLOATS = {"ff_multiple", "qk_scale", "rotary_base", "norm_eps"}
_CHOICES = {
    field.name: field.metadata["choices"] for field in fields(MupConfig) if field.metadata.get("choices")
}


# Optimizer settings of mu-Transformer and the config fields for them (docs/maths/mup.md, 3.1).
_OPTIMIZER = {
    "optim_name": "name",
    "optim_rule": "rule",
    "lr_base": "lr",
    "lr_max": "lr",
    "optim_beta1": "beta1",
    "optim_beta2": "beta2",
    "optim_eps": "eps",
    "use_eps_scaling": "eps_scaling",
    "wd": "weight_decay",
    "grad_clip": "clip",
}


class MuTransformer(System[MupConfig]):
    """Mu-Transformer's program as a System (interop/system.py)."""

    normalize = "all_slots"
    families = ("mup",)

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        self._paths = paths or {}  # name -> path, if the weights have whole paths as names

    def reading(
        self, config: Settings, weights: Mapping[str, AnyTensor]
    ) -> tuple[MuTransformer, dict[str, AnyTensor]]:
        """Return this system for the names of the weights: short names, or paths of the parameter tree."""
        paths = {name.rsplit("/", 1)[-1]: name for name in weights}
        if len(paths) != len(weights):
            raise ValueError("[mu_transformer] weights: two paths end in the same name")
        return MuTransformer(paths), dict(weights)

    def optimizer(self, config: Settings) -> OptimConfig:
        """Return the original's optimizer with the rates and rules of the settings."""
        found = {ours: config[name] for name, ours in _OPTIMIZER.items() if name in config}
        mode = "independent" if config.get("use_iwd") else "coupled"
        defaults = OptimConfig(rule="mup", weight_decay=0.0)
        return with_fields(defaults, {**found, "decay": "all", "decay_mode": mode})

    def model_config(self, config: Settings, shapes: Shapes) -> MupConfig:
        """Return the mudd_core config for settings and sizes; raise ValueError for unsupported settings."""
        shapes = {name.rsplit("/", 1)[-1]: shape for name, shape in shapes.items()}
        vocab, width = sizes("mu_transformer", shapes, "w_e", 2)
        layers, _, _, head = sizes("mu_transformer", shapes, "w_aq", 4)
        read = Reader("mu_transformer", config)
        layers = layers_in("mu_transformer", layers)
        read.agree({"d_model": width, "n_layer": layers, "n_vocab": vocab, "d_head": head})
        given = _given(read)
        if "act_name" in config:  # before April 2024: one name, and a flag that squares
            given["ff_act_name"] = _activation(read, config["act_name"], read.flag("act_square"))
        elif "ff_act_name" in given:
            given["ff_act_name"] = _activation(read, given["ff_act_name"], False)
        given.setdefault("d_head", head)
        given["qk_scale"] = scale = read.number("qk_scale", 1.0 / 128)
        if scale <= 0:
            raise ValueError(f"[mu_transformer] qk_scale: expected more than 0, got {scale:g}")
        longest = read.whole("sequence_len", 256)
        plain = MupConfig(vocab_size=vocab, max_seq_len=longest, d_model=width, n_layer=layers)
        model = with_fields(plain, given)
        faults = [
            f"{name}: expected one of {', '.join(choices)}, got {getattr(model, name)!r}"
            for name, choices in _CHOICES.items()
            if getattr(model, name) not in choices
        ] or model_faults(model)
        if model.norm_gains and model.qk_norm and model.norm_gains_type == "vector" and width != model.d_head:
            faults.append("norm_gains: with qk_norm its vectors of d_model gains work with one head only")
        if faults:
            raise ValueError(f"[mu_transformer] {faults[0]}")
        return model

    def original_config(self, model: MupConfig) -> JsonObject:
        """Return the settings of its config file that concern the model."""
        same = {name: getattr(model, name) for name in MODEL_KEYS}
        return {
            **same,
            "qk_scale": model.scale,
            "n_layer": model.n_layer,
            "d_model": model.d_model,
            "sequence_len": model.max_seq_len,
            "n_vocab": model.vocab_size,
        }

    def entries(self, model: MupConfig, config: Settings) -> list[Entry]:
        """Return the map from mudd_core parameters to the program's tensors."""
        entries = [_entry("embed"), _entry("head", axes=(1, 0))]
        if model.proj_biases:
            entries.append(_entry("head_bias"))
        if model.norm_gains:
            entries.append(_entry("final_norm.gain"))
            entries += [_entry("embed_norm.gain")] if model.e_norm else []
        for layer in range(model.n_layer):
            entries += _block(model, layer)
        return [replace(entry, theirs=self._paths.get(entry.theirs, entry.theirs)) for entry in entries]

    def shapes(self, model: MupConfig, config: Settings) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all the program's tensors."""
        M, L, D, V = model.d_model, model.n_layer, model.d_head, model.vocab_size
        H, G, F = model.n_head, model.n_kv_head, model.d_ff
        E = 2 * F if model.ff_act_name == "swiglu" else F
        shapes: dict[str, tuple[int, ...]] = {
            "w_e": (V, M),
            "w_u": (M, V),
            "w_aq": (L, M, H, D),
            "w_ak": (L, M, G, D),
            "w_av": (L, M, G, D),
            "w_ao": (L, H, D, M),
            "w_fi": (L, M, E),
            "w_fo": (L, F, M),
        }
        if model.proj_biases:
            shapes |= {
                "b_aq": (L, H, D),
                "b_ak": (L, G, D),
                "b_av": (L, G, D),
                "b_ao": (L, M),
                "b_fi": (L, E),
                "b_fo": (L, M),
                "b_u": (V,),
            }
        if model.norm_gains:
            n = 1 if model.norm_gains_type == "scalar" else M
            shapes |= {"g_a": (L, n), "g_f": (L, n), "g_u": (n,)}
            shapes |= {"g_e": (n,)} if model.e_norm else {}
            shapes |= {"g_aq": (L, n), "g_ak": (L, n)} if model.qk_norm else {}
        return {self._paths.get(name, name): shape for name, shape in shapes.items()}

    def batch(self, config: Settings, batch: Mapping[str, npt.ArrayLike]) -> dict[str, Array]:
        """Convert tokens to shifted inputs and masked targets; return a batch of mudd_core unchanged."""
        if "tokens" not in batch:
            return {name: as_ids(value, name) for name, value in batch.items()}
        if set(batch) != {"tokens"}:
            raise ValueError(f"[mu_transformer] batch: expected tokens alone, got {', '.join(sorted(batch))}")
        rows = as_ids(batch["tokens"], "tokens")
        read = Reader("mu_transformer", config)
        bos = read.whole("bos_token_id", 0, low=0)
        eos = read.whole("eos_token_id", 1, low=0)
        pad = read.whole("pad_token_id", eos, low=0)
        inputs = np.concatenate([np.full((rows.shape[0], 1), bos, np.int32), rows[:, :-1]], axis=1)
        ended = np.cumsum((rows == eos) | (rows == pad), axis=1)
        after = np.concatenate([np.zeros((rows.shape[0], 1), ended.dtype), ended[:, :-1]], axis=1) > 0
        return {"inputs": inputs, "targets": np.where(after, -1, rows).astype(np.int32)}


def _activation(read: Reader, name: Json, square: bool) -> str:
    if not isinstance(name, str):
        raise read.refusal("act_name", "the name of an activation", name)
    try:
        return activation(name, square)
    except ValueError as error:
        raise ValueError(f"[mu_transformer] {error}") from None


def _given(read: Reader) -> JsonObject:
    """Return the settings that have the same name in mudd_core, each with the type of its config field."""
    found: JsonObject = {}
    for name in MODEL_KEYS:
        value = read.config.get(name)
        if value is None:
            continue
        if name in _FLOATS:
            found[name] = read.number(name, 0.0)
        elif isinstance(getattr(MupConfig, name), bool):
            found[name] = read.flag(name)
        else:
            found[name] = value if name in _CHOICES else read.whole(name)
    return found


def _entry(ours: str, index: Index = (), axes: tuple[int, ...] | None = None) -> Entry:
    return Entry(ours, original_name(ours)[0], index=index, axes=axes)


def _block(model: MupConfig, layer: int) -> list[Entry]:
    block, entries = f"blocks.{layer}.", []
    for kind in ("w", "b") if model.proj_biases else ("w",):
        for name in ("attn.q", "attn.k", "attn.v", "attn.o", "ffn.down"):
            entries.append(_entry(f"{block}{name}.{kind}", (layer,)))
        if model.ff_act_name != "swiglu":
            entries.append(_entry(f"{block}ffn.up.{kind}", (layer,)))
            continue
        for half, name in enumerate(("gate", "up")):
            part = slice(half * model.d_ff, (half + 1) * model.d_ff)
            index = (layer, _ALL, part) if kind == "w" else (layer, part)
            entries.append(_entry(f"{block}ffn.{name}.{kind}", index))
    if model.norm_gains:
        gains = ["attn.norm", "ffn.norm", *(["attn.q_norm", "attn.k_norm"] if model.qk_norm else [])]
        entries += [_entry(f"{block}{name}.gain", (layer,)) for name in gains]
    return entries


SYSTEM = MuTransformer()
