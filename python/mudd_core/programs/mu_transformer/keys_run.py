"""Keys of mu-Transformer for a run: its seed, name, mesh and sampling."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.config.fields import Scalar, replace_path
from mudd_core.config.run_config import Config
from mudd_core.programs.mesh_sizes import note, of_rows
from mudd_core.programs.mu_transformer.keys_values import Fields, keys_of, number, text, whole
from mudd_core.programs.row import Value, Values

_SEEDS = 2**64 - 1
# Keys that the grammar itself reads.
MESH, SAMPLING, SWEEP = ("n_mesh_rows", "n_mesh_cols"), "sampling_method", "is_sweep"
MESH_FIELDS = ("mesh.data", "mesh.fsdp", "mesh.zero")
RATE, OLD_RATE = "lr_base", "lr_max"
DATASET, VARIANT, TOKENIZER = "hfds_identifier", "hfds_config", "hftr_tokenizer_instance"
LIKE: Mapping[str, Value] = {OLD_RATE: 1.0, "seed": 0}  # example values of keys whose default is null
_NAMED = (
    "dtype",
    "lr_base",
    "wd",
    "d_model",
    "n_layer",
    "ff_act_name",
    "optim_name",
    "optim_rule",
    "lr_schedule_name",
)
_COUNTED = ("tokens_per_global_batch", "n_pretrain_step")
_UPDATES = (
    "n_pretrain_step",
    "n_finetune_step",
    "n_warmup_step",
    "n_print_step",
    "n_save_step",
)  # the original counts micro-batches; an update has grad_acc_steps of them
_OLD_NAMES = (OLD_RATE, "seed", "act_name", "act_square")
# The columns of sweep.tsv and their keys.
_COLUMNS = {
    "group": "experiment_group",
    "seed": "rng_seed",
    "fold": "rng_fold",
    "dtype": "dtype",
    "tokens_per_batch": "tokens_per_global_batch",
    "lr": "lr_base",
    "wd": "wd",
    "width": "d_model",
    "depth": "n_layer",
    "nonlin": "ff_act_name",
    "optim": "optim_name",
    "rule": "optim_rule",
    "sched": "lr_schedule_name",
    "steps": "n_pretrain_step",
}


def sampling(values: Values) -> Fields:
    """Return the one sampling method with its parameter; the other two are off."""
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


def prompt_tokens(values: Values) -> Fields:
    """Return the number of prompt tokens for --mode=sample."""
    return {"sample.prompt_tokens": whole(values, "sampling_prompt_len", 1)}


def _folded(seed: int, value: int) -> int:
    """Mix a value into a seed by two rounds of SplitMix64's finalizer."""
    for word in (value, 0x9E3779B97F4A7C15):
        seed = (seed + word + 0x9E3779B97F4A7C15) & _SEEDS
        seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9 & _SEEDS
        seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EB & _SEEDS
        seed ^= seed >> 31
    return seed


def seed(values: Values) -> Fields:
    """Return the seed of the weights. If rng_fold is set, four sizes are mixed in."""
    key = whole(values, "rng_seed" if values["seed"] is None else "seed")
    if values["rng_fold"]:
        for name in ("tokens_per_global_batch", "n_pretrain_step", "d_model", "n_layer"):
            key = _folded(key, whole(values, name))
    return {"train.seed": key}


def final_values(values: Values, config: Config) -> dict[str, Value]:
    """Return the keys updated from the config, which includes overrides of config fields."""
    now = keys_of(config)
    names = _NAMED if values["grad_acc_steps"] != 1 else (*_NAMED, *_COUNTED)
    number = values["rng_seed"] if values["seed"] is None else values["seed"]
    return {**values, **{name: now[name] for name in names}, "rng_seed": number}


def start_fields(values: Values, config: Config) -> dict[str, Value]:
    """Return the original's fields by their current names, with the values of the run."""
    now, micro = keys_of(config), whole(values, "grad_acc_steps", 1)
    for name in _UPDATES:
        now[name] = int(now[name]) * micro
    now["tokens_per_global_batch"] = int(now["tokens_per_global_batch"]) // micro
    number = values["rng_seed"] if values["seed"] is None else values["seed"]
    folded = {"rng_seed_folded": config.train.seed} if values["rng_fold"] else {}
    typed = {name: value for name, value in values.items() if name not in _OLD_NAMES}
    if typed["model_size"] is None:
        del typed["model_size"]
    return {**typed, **now, "rng_seed": number, **folded}


def mesh(values: Values) -> dict[str, Scalar]:
    """Return the mesh of a command. Sizes from a file are 1 here, because the number of started ranks is used."""
    return of_rows(*(whole(values, name, 1) for name in MESH))


def mesh_note(values: Values) -> str:
    """Return a line that explains how the mesh of a command is mapped."""
    rows, cols = (whole(values, name, 1) for name in MESH)
    return note(f"n_mesh_rows={rows}, n_mesh_cols={cols}", mesh(values))


def file_mesh(config: Config, sizes: Mapping[str, Value]) -> tuple[Config, list[str]]:
    """Apply the mesh of a file, which shards weights across the started ranks; return the config and notes."""
    rows, cols = (whole({**dict.fromkeys(MESH, 1), **sizes}, name, 1) for name in MESH)
    if rows * cols == 1:
        return config, []
    return replace_path(config, "mesh.zero", 3), [
        f"n_mesh_rows={rows}, n_mesh_cols={cols} of the file: mapped to mesh.zero=3 over the ranks that are started; "
        f"--ranks={rows * cols} is that mesh"
    ]


def sweep_columns(values: Values) -> dict[str, str]:
    """Return the columns of sweep.tsv; none unless the run belongs to a sweep."""
    return {column: str(values[key]) for column, key in _COLUMNS.items()} if values[SWEEP] else {}


def run_names(values: Values) -> tuple[str, str]:
    """Return the folder names of the run to read and of the run to write."""
    read, written = (_run_name(values, str(values[f"{kind}_suffix"] or "")) for kind in ("load", "save"))
    return read, written


def _run_name(values: Values, suffix: str) -> str:
    data = text(values, "hfds_identifier").rstrip("/").rpartition("/")[2].lower()
    parts = {
        "t": values["rng_seed"],
        "d": values["dtype"],
        "b": values["tokens_per_global_batch"],
        "a": values["lr_base"],
        "w": values["wd"],
        "m": values["d_model"],
        "l": values["n_layer"],
        "n": values["ff_act_name"],
        "o": values["optim_name"],
        "r": values["optim_rule"],
        "s": values["lr_schedule_name"],
        "p": values["n_pretrain_step"],
    }
    named = [f"{mark}{value}" for mark, value in parts.items()]
    return "_".join(
        ["mutransformer", data, text(values, "experiment_group"), *named, *([suffix] if suffix else [])]
    )
