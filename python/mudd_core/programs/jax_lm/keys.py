"""jax-lm-training: the flags of its two commands (docs/coming-from/jax_lm.md)."""

from __future__ import annotations

from mudd_core.config.fields import Scalar
from mudd_core.programs.row import WORKDIR, Row, Values, mapped

_G = "jax_lm"
PREPROCESS_GRAMMAR = "jax_lm_preprocess"
# Flags that affect more than fields: the model, the work directory, the initial checkpoint, the tracker.
MODEL, FOLDER, RESTORED = "model_config_name", "model_save_dir", "restore_checkpoint_path"
TRACKERS, TRACKER_FOLDER = ("wandb_username", "wandb_project"), "wandb_run_dir"
ONLY_IF_TYPED = (*TRACKERS, RESTORED)  # the defaults of these flags have no effect
_DTYPES = {"float32": "fp32", "bfloat16": "bf16"}


def flag(name: str) -> str:
    """Return a key in the form in which users type it."""
    return f"--{name.replace('_', '-')}"


def _flag(name: str, default: str | int, text: str) -> Row:
    return mapped(PREPROCESS_GRAMMAR, name, default, text=text)


# The options of the preprocess command, which writes files and sets no field of a config.
PREPROCESS: tuple[Row, ...] = (
    _flag(
        "tokenizer_model", "gpt2", "tokenizer: a folder, a tokenizer.json or a name on the Hugging Face hub"
    ),
    _flag("min_sequence_length", 128, "shortest window to keep, in tokens, with the reserved ones"),
    _flag("max_sequence_length", 256, "length of every sequence, in tokens"),
    _flag("num_special_token_reserved", 2, "tokens of a sequence reserved for BOS and EOS"),
    _flag("ignore_label", -100, "label of a position whose target is padding"),
    _flag("stride", 128, "tokens between the starts of consecutive windows of a document"),
    _flag("dataset_name", "wikitext", "documents: a file, a folder or a data set of the Hugging Face hub"),
    _flag("dataset_sub_name", "wikitext-103-v1", "configuration of that data set"),
    _flag("dataset_split_type", "test", "split of that data set"),
    _flag("output_path", "data/wikitext", "prefix of the Parquet files' names"),
    _flag("direct_running_mode", "in_memory", "in_memory, multi_threading or multi_processing"),
    _flag("direct_num_workers", 1, "worker processes; 0 = one for each core"),
)


def _precision(values: Values) -> dict[str, Scalar]:
    name = str(values["dtype"])
    if name == "float16":
        raise ValueError("expected float32 or bfloat16, got float16, which needs loss scaling; use bfloat16")
    if name not in _DTYPES:
        raise ValueError(f"expected float32 or bfloat16, got '{name}'")
    return {"train.precision": _DTYPES[name]}


def _train_files(values: Values) -> dict[str, Scalar]:
    path = str(values["train_dataset_paths"])
    rows = {"data.pipeline": "features", "data.format": "parquet", "eval.protocol": "features"}
    return {"data.path": path, **rows}


def _seed_note(values: Values) -> str:
    seed = values["random_seed"]
    return (
        f"random_seed={seed} also seeds the weights, which the original always initializes with seed 0"
        if seed
        else ""
    )


def _tracker(name: str, default: str, path: str) -> Row:
    return mapped(
        _G,
        name,
        default,
        path,
        "log.wandb",
        text="if set, Weights & Biases is on",
        convert=lambda values: {path: str(values[name]), "log.wandb": "online"},
    )


ROWS: tuple[Row, ...] = (
    mapped(
        _G,
        MODEL,
        "distilgpt2",
        "model",
        text="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2 or a folder with config.json",
        convert=lambda values: {},
    ),
    mapped(
        _G,
        "train_dataset_paths",
        "dataset/wikitext.train**",
        "data.path",
        "data.pipeline",
        "eval.protocol",
        convert=_train_files,
    ),
    mapped(_G, "eval_dataset_paths", "dataset/wikitext.test**", "data.eval_path"),
    mapped(_G, "batch_size", 16, "train.batch_size", text="validation uses the same batch size"),
    mapped(_G, "random_seed", 0, "train.seed", note=_seed_note),
    mapped(
        _G,
        "max_sequence_length",
        256,
        "train.seq_len",
        text="the length of the stored sequences takes precedence",
    ),
    mapped(_G, "num_epochs", 5, "train.epochs"),
    mapped(_G, "learning_rate", 3e-5, "optim.lr"),
    mapped(_G, "weight_decay_rate", 0.01, "optim.weight_decay"),
    mapped(_G, "adamw_beta1", 0.9, "optim.beta1"),
    mapped(_G, "adamw_beta2", 0.98, "optim.beta2"),
    mapped(_G, "adamw_eps", 1e-8, "optim.eps"),
    mapped(_G, "dtype", "float32", "train.precision", text="float32 or bfloat16", convert=_precision),
    _tracker(TRACKERS[0], "codertimo", "log.wandb_entity"),
    _tracker(TRACKERS[1], "jax-lm-training", "log.wandb_project"),
    mapped(_G, TRACKER_FOLDER, ".wandb", "log.wandb_dir"),
    mapped(_G, "logging_frequency", 100, "train.log_every"),
    mapped(_G, "eval_frequency", 5000, "train.eval_every"),
    mapped(
        _G,
        "save_frequency",
        5000,
        "train.save_every",
        "train.period_start",
        text="the count of steps starts at 0",
        convert=lambda values: {
            "train.save_every": int(str(values["save_frequency"])),
            "train.period_start": 1,
        },
    ),
    mapped(_G, FOLDER, "artifacts/", WORKDIR),
    mapped(
        _G,
        RESTORED,
        None,
        "start.load_parameters_path",
        "start.keep_optimizer",
        text="restores weights, optimizer state and step",
        convert=lambda values: {
            "start.load_parameters_path": str(values[RESTORED]),
            "start.keep_optimizer": True,
            "start.keep_step": True,
        },
    ),
    *PREPROCESS,
)
