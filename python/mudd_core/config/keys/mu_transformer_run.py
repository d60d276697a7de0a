"""Keys of mu-Transformer about a run: its seed, its name, how it samples."""

from __future__ import annotations

from mudd_core.config.keys.mu_transformer_values import Fields, number, text, whole
from mudd_core.config.keys.row import Values

_SEEDS = 2**64 - 1


def sampling(values: Values) -> Fields:
    """One method of drawing tokens, with its one number; the other two are off."""
    method = text(values, "sampling_method")
    fields: Fields = {"sample.temperature": 1.0, "sample.top_k": 0, "sample.top_p": 1.0}
    if method == "nucleus":
        fields["sample.top_p"] = number(values, "sampling_nucleus")
    elif method == "topk":
        fields["sample.top_k"] = whole(values, "sampling_topk", 1)
    elif method == "temp":
        fields["sample.temperature"] = number(values, "sampling_temp")
    else:
        raise ValueError(f"sampling_method: expected nucleus, topk or temp, got '{method}'")
    return fields | {"sample.max_tokens": whole(values, "sampling_max_len", 1), "sample.window": "ring"}


def _folded(seed: int, value: int) -> int:
    """A seed made of a seed and a number: two rounds of SplitMix64's finalizer."""
    for word in (value, 0x9E3779B97F4A7C15):
        seed = (seed + word + 0x9E3779B97F4A7C15) & _SEEDS
        seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 & _SEEDS
        seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EB & _SEEDS
        seed ^= seed >> 31
    return seed


def seed(values: Values) -> Fields:
    """The seed of the weights, with four sizes folded in where rng_fold asks for it."""
    key = whole(values, "rng_seed" if values["seed"] is None else "seed")
    if values["rng_fold"]:
        for name in ("tokens_per_global_batch", "n_pretrain_step", "d_model", "n_layer"):
            key = _folded(key, whole(values, name))
    return {"train.seed": key}


def run_name(values: Values, suffix: str) -> str:
    """The folder of a run below the work directory."""
    data = text(values, "hfds_identifier").rstrip("/").rpartition("/")[2].lower()
    parts = {
        "t": values["rng_seed"], "d": values["dtype"], "b": values["tokens_per_global_batch"],
        "a": values["lr_base"], "w": values["wd"], "m": values["d_model"], "l": values["n_layer"],
        "n": values["ff_act_name"], "o": values["optim_name"], "r": values["optim_rule"],
        "s": values["lr_schedule_name"], "p": values["n_pretrain_step"],
    }  # fmt: skip
    named = [f"{mark}{value}" for mark, value in parts.items()]
    return "_".join(
        ["mutransformer", data, text(values, "experiment_group"), *named, *([suffix] if suffix else [])]
    )
