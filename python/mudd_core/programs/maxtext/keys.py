"""Keys of MaxText's forks (MUDDFormer, TokenFormer) about the run and its data."""

from __future__ import annotations

import posixpath

from mudd_core.config.fields import Scalar
from mudd_core.config.values import whole
from mudd_core.programs.maxtext.keys_model import MODEL
from mudd_core.programs.maxtext.keys_noted import NOTED
from mudd_core.programs.maxtext.keys_training import TRAINING
from mudd_core.programs.maxtext.mixture import is_mixture, mixture_fields
from mudd_core.programs.mesh_sizes import AXES, REFUSED_AXES, axis_key, maxtext_note, of_maxtext, without
from mudd_core.programs.row import WORKDIR, Row, Value, Values, mapped, noted, refused

NAME = "maxtext"
# Keys that affect more than fields: the run's folder, its model, the base of the yml file, the command.
RUN, FOLDER, CLASS, BASE_FILE, EVALUATES = (
    "run_name",
    "base_output_directory",
    "model_name",
    "base_config",
    "only_eval",
)
DATASET = "dataset_type"
_PIPELINES = {
    "pile": "pile",
    "grain": "pack",
    "hf": "pack",
    "megatron": "megatron",
    "c4_mlperf": "blocks",
    "synthetic": "synthetic",
}
_INSTEAD = {
    "tfds": "use dataset_type=grain with grain_train_files=FILES, or hf with dataset_path=FILES",
    "pretrain_4k": "use dataset_type=pile with dataset_path=FOLDER of the TFRecord files",
}


def _name(values: Values) -> dict[str, Scalar]:
    last = posixpath.basename(posixpath.normpath(str(values[RUN] or "run"))).lstrip(".")
    return {"name": last or "run"}


def _pipeline(values: Values) -> str:
    kind = str(values["dataset_type"])
    if kind in _INSTEAD:
        raise ValueError(f"dataset_type: there is no {kind} here; {_INSTEAD[kind]}")
    if kind not in _PIPELINES and ".py:" not in kind:
        raise ValueError(f"dataset_type: expected {', '.join(_PIPELINES)} or FILE.py:reader, got '{kind}'")
    return _PIPELINES.get(kind, kind)


def _files(values: Values) -> str:
    """Return the training files, as typed; empty without them."""
    grain, folder = (str(values[name] or "") for name in ("grain_train_files", "dataset_path"))
    first, second = (grain, folder) if values["dataset_type"] == "grain" else (folder, grain)
    return first or second


def _path(values: Values) -> dict[str, Scalar]:
    files = _files(values)
    if not files and _pipeline(values) != "synthetic":
        name = "grain_train_files" if values["dataset_type"] == "grain" else "dataset_path"
        raise ValueError(f"expected {name}=FILES for dataset_type={values['dataset_type']}, got none")
    if not is_mixture(files):
        return {"data.path": files, "data.mix": "", "data.sources": "", "data.mix_until": "steps"}
    return {"data.path": "", **mixture_fields(files, str(values["grain_eval_files"] or ""), _passes(values))}


def _eval_path(values: Values) -> dict[str, Scalar]:
    files = str(values["grain_eval_files"] or "")
    return {"data.eval_path": "" if is_mixture(_files(values)) else files}


def _eval_match(values: Values) -> dict[str, Scalar]:
    return {"data.eval_match": str(values["eval_split"] or "") if values["dataset_type"] == "pile" else ""}


def _shuffle(values: Values) -> dict[str, Scalar]:
    return {"data.shuffle": "auto" if values["enable_data_shuffling"] else "off"}


def _whole(name: str, field: str) -> Row:
    """Build an integer key of the data; null becomes 0."""
    return mapped(NAME, name, None, field, convert=lambda values: {field: as_whole(values[name])})


def as_whole(value: Value) -> int:
    """Return the value as an integer; null is 0."""
    if value is None:
        return 0
    return whole("", int(value) if isinstance(value, bool) else value, strings=False)


def _passes(values: Values) -> int:
    return 0 if values["dataset_type"] == "synthetic" else as_whole(values["epoch"])


def _epochs(values: Values) -> dict[str, Scalar]:
    passes = _passes(values)
    return {"data.epochs": 0 if is_mixture(_files(values)) else passes, "train.to_data_end": passes > 0}


def _groups(values: Values) -> dict[str, Scalar]:
    return {
        "data.files_per_group": as_whole(values["iter_file_nums"]) if values["dataset_type"] == "pile" else 0
    }


def _hardware(values: Values) -> str:
    kind = str(values["hardware"])
    if kind != "cpu" and kind != "tpu" and not kind.startswith("gpu"):
        raise ValueError(f"expected cpu, tpu, gpu or gpu_multiprocess, got '{kind}'")
    return ""


_RUN = (
    mapped(
        NAME,
        RUN,
        "",
        "name",
        WORKDIR,
        text=f"name of the run, which is its folder in {FOLDER}",
        convert=_name,
    ),
    mapped(NAME, FOLDER, "", WORKDIR, text="folder that contains the runs; empty = the current folder"),
    mapped(NAME, CLASS, "MUDDLlama", "model", text="model class, whose settings override the yml file"),
    mapped(NAME, BASE_FILE, "", text="yml file from which this file inherits"),
    Row(
        NAME, "hardware", "tpu", "noted", text="this program trains on CPUs", allowed=("cpu",), note=_hardware
    ),
    mapped(NAME, "async_checkpointing", True, "train.save_async"),
    noted(
        NAME,
        "remat_policy",
        "full",
        "set train.recompute=true to save memory; the results have the same bits",
    ),
    noted(NAME, "logits_dot_in_fp32", False, "logits are always summed in fp32"),
    *(
        mapped(
            NAME,
            axis_key(network, axis),
            1,
            "mesh.data",
            "mesh.fsdp",
            "mesh.expert",
            "mesh.zero",
            text="the data sizes multiply to mesh.data, all other sizes to mesh.fsdp; mesh.zero is 3 if "
            "weights are sharded; -1 = all remaining ranks",
            convert=of_maxtext,
            note=maxtext_note,
        )
        for network in ("ici", "dcn")
        for axis in AXES
    ),
    *(
        refused(
            NAME,
            axis_key(network, axis),
            1,
            without(axis, f"{axis_key('ici', 'fsdp')}=-1 uses all ranks"),
            1,
            -1,
        )
        for network in ("ici", "dcn")
        for axis in REFUSED_AXES
    ),
)

_FILES = ("data.path", "data.mix", "data.sources", "data.mix_until")
_DATA = (
    mapped(
        NAME,
        "dataset_path",
        "",
        *_FILES,
        text="training files; with dataset_type=grain, only if grain_train_files is empty",
        convert=_path,
    ),
    mapped(
        NAME,
        "grain_train_files",
        "",
        *_FILES,
        text="training files of dataset_type=grain; for other types, only if dataset_path is empty; "
        "FILES,WEIGHT;FILES,WEIGHT is a mixture",
        convert=_path,
    ),
    mapped(NAME, "grain_eval_files", "", "data.eval_path", convert=_eval_path),
    mapped(
        NAME,
        "eval_split",
        "valid",
        "data.eval_match",
        text="dataset_type=pile: files whose path contains this string are used for validation only; "
        "None, empty or no such file: no validation",
        convert=_eval_match,
    ),
    mapped(
        NAME,
        DATASET,
        "pretrain_4k",
        "data.pipeline",
        text="grain and hf: pack; c4_mlperf: blocks; pile, megatron (.idx and .bin files), synthetic and "
        "FILE.py:reader: the same name",
        convert=lambda values: {"data.pipeline": _pipeline(values)},
    ),
    mapped(NAME, "grain_worker_count", 1, "data.workers"),
    mapped(
        NAME,
        "tokenizer_path",
        "",
        "data.tokenizer",
        convert=lambda values: (
            {"data.tokenizer": str(values["tokenizer_path"])} if values["tokenizer_path"] else {}
        ),
    ),
    mapped(NAME, "data_shuffle_seed", 9876, "data.seed"),
    mapped(NAME, "enable_data_shuffling", True, "data.shuffle", convert=_shuffle),
    _whole("train_shuffle_buffer_size", "data.buffer"),
    refused(
        NAME,
        "eval_shuffle_buffer_size",
        None,
        "validation sequences keep their order: set eval_shuffle_buffer_size=None",
    ),
    refused(NAME, "packing_train", True, "documents are packed into sequences: set packing_train=True"),
    mapped(
        NAME,
        "iter_file_nums",
        20,
        "data.files_per_group",
        text="used with dataset_type=pile",
        convert=_groups,
    ),
    mapped(
        NAME,
        "epoch",
        1,
        "data.epochs",
        "train.to_data_end",
        text="passes over the data; the run ends after the last one",
        convert=_epochs,
    ),
    mapped(NAME, "zero_loss", False, "data.zero_loss"),
    mapped(
        NAME,
        "reuse_example_batch",
        0,
        "data.repeat_batch",
        convert=lambda values: {"data.repeat_batch": as_whole(values["reuse_example_batch"]) > 0},
    ),
)

ROWS: tuple[Row, ...] = (*_RUN, *_DATA, *TRAINING, *MODEL, *NOTED)
