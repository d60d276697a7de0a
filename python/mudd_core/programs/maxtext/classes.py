"""Classes of settings over those of a base file: the program's own, and those of a user's file (exp.py).

Each class has keys as plain class attributes, and goes over its base class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_text
from mudd_core.config.load import run_module
from mudd_core.config.suggest import nearest
from mudd_core.programs.maxtext.keys import CLASS
from mudd_core.programs.row import Row, Value

# Without steps, which the base file has as well: those of a user's own file hold.
_LLAMA: dict[str, Value] = {
    "decoder_block": "llama2",
    "vocab_size": 32_000,
    "mlp_activations": ["silu", "linear"],
    "enable_dropout": False,
    "logits_via_embedding": False,
    "normalization_layer_epsilon": 1e-6,
    "rope_max_timescale": 10_000,
    "max_target_length": 2049,
    "log_period": 25,
    "scan_layers": True,
}
_LLAMA_MEDIUM = _LLAMA | {
    "base_emb_dim": 1024,
    "base_num_query_heads": 16,
    "base_num_kv_heads": 16,
    "base_mlp_dim": 2816,
    "base_num_decoder_layers": 24,
    "head_dim": 64,
    "learning_rate": 3e-4,
    "learning_rate_schedule_steps": 13_500,
    "warmup_steps_fraction": 0.01,
    "cosine_learning_rate_final_fraction": 0.1,
    "per_device_batch_size": 8.0,
}
_2_MEDIUM = _LLAMA_MEDIUM | {
    "vocab_size": 50_432,
    "per_device_batch_size": 32.0,
    "eval_per_device_batch_size": 32.0,
    "dataset_type": "pile",
    "iter_file_nums": 2,
    "train_shuffle_buffer_size": None,
    "eval_shuffle_buffer_size": None,
    "adam_b1": 0.9,
    "adam_b2": 0.95,
    "adam_eps": 1e-8,
    "adam_weight_decay": 0.1,
    "eval_interval": 13_500,
    "eval_loop_num_batches": 162,
    "enable_checkpointing": True,
    "checkpoint_period": 500,
    "keep_period": 1000,
    "scan_layers": False,
}
CLASSES: Mapping[str, Mapping[str, Value]] = {
    "LlamaMedium": _LLAMA_MEDIUM,
    "Llama2Medium": _2_MEDIUM,
    "MUDDLlama2Medium": _2_MEDIUM
    | {
        "dense_conn": True,
        "dynamic_mlp_dim": True,
        "dynamic_dense_type": "qkvm",
        "dynamic_dense_act_cls": "gelu",
        "dynamic_dense_fix_last_layer": True,
        "dynamic_dense_hidden_expand": [*[1] * 23, 4],
        "dynamic_dense_hidden_round": True,
        "ddw_gen_pattern": "q,k,v,m",
        "ddw_gen_chunk_size": None,
        "mudd_prenorm": True,
        "mudd_postnorm": True,
    },
    "Llama7B": _LLAMA
    | {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 32,
        "base_mlp_dim": 11_008,
        "base_num_decoder_layers": 32,
        "head_dim": 128,
    },
    "Llama": _LLAMA,
}


_FILE = "exp.py"  # the program's own name


def class_of(name: str, yml: str, rows: Mapping[str, Row], hint: str) -> tuple[dict[str, Value], str]:
    """(settings, place) of a class: FILE.py:NAME, a class of exp.py, or one of the program's own.

    yml: the base file. exp.py is looked up in its folder, in the folder above (MaxText/exp.py for MaxText/configs), in
    the current folder and in MaxText/. hint: for a name that is nowhere.
    """
    file, colon, plain = name.rpartition(":")
    if colon and file.endswith(".py"):
        path = Path(file)
        if plain not in _names(path):
            raise UserError(f"[maxtext] {CLASS}: {path} has no class '{plain}'{nearest(plain, _names(path))}")
        return _settings(path, plain, rows), f"class {plain} of {path}"
    places = [path for path in _places(yml) if path.is_file()]
    for path in places:
        if name in _names(path):
            return _settings(path, name, rows), f"class {name} of {path}"
    if name in CLASSES:
        return dict(CLASSES[name]), f"class {name}"
    own = [known for path in places for known in _names(path)]
    searched = f" or a class of {', '.join(map(str, places))}" if places else f" or {CLASS}=FILE.py:NAME"
    raise UserError(
        f"[maxtext] {CLASS}: expected one of {', '.join(CLASSES)}{searched}, got '{name}'"
        f"{nearest(name, [*own, *CLASSES]) if hint == '' else hint}"
    )


def _places(yml: str) -> Iterator[Path]:
    folder = Path(yml).parent
    found = (folder / _FILE, folder.parent / _FILE, Path(_FILE), Path("MaxText") / _FILE)
    return iter(dict.fromkeys(found))


def _names(path: Path) -> list[str]:
    """Names of the classes that a file defines; it is not run for that."""
    try:
        tree = ast.parse(read_text(path), str(path))
    except (OSError, ValueError, SyntaxError, RecursionError) as error:
        raise UserError(f"[maxtext] {CLASS}: {path}: {error}") from error
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef)]


def _settings(path: Path, name: str, rows: Mapping[str, Row]) -> dict[str, Value]:
    """The attributes of a class and of its base classes; UserError for one that is no key or no plain value."""
    known = {base: type(base, (), dict(values)) for base, values in CLASSES.items()}
    found = getattr(run_module(path, known), name)
    settings: dict[str, Value] = {}
    for base in reversed(found.__mro__[:-1]):
        settings |= {key: value for key, value in vars(base).items() if not key.startswith("__")}
    settings.pop(CLASS, None)  # the program's classes name themselves
    for key, value in settings.items():
        _check(f"{path}: {name}.{key}", key, value, rows)
    return settings


def _check(place: str, key: str, value: Value, rows: Mapping[str, Row]) -> None:
    if key not in rows:
        raise UserError(f"[maxtext] {place}: no such key{nearest(key, rows)}")
    wanted = rows[key].default
    if value is None or wanted is None:
        return
    kinds = {bool: "true or false", int: "a number", float: "a number", str: "a string", list: "a list"}
    kind = int if type(wanted) is float else type(wanted)
    if type(value) is kind or (kind is int and type(value) is float):
        return
    raise UserError(f"[maxtext] {place}: expected {kinds.get(kind, kind.__name__)}, got {value!r}")
