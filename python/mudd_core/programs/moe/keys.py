"""Keys of the benchmark's Hydra configs (the command clm); keys_model.py has the keys of model and data."""

from __future__ import annotations

from mudd_core.programs.mesh_sizes import note, of_tensor, without
from mudd_core.programs.moe import keys_values as values
from mudd_core.programs.moe.keys_model import DATA, MODEL, SHAPE_FIELDS
from mudd_core.programs.row import WORKDIR, Row, mapped, noted, refused

_G = "hydra"
FOLDER = "run_dir"  # sets the run's folder
# Keys that the note on per-device batch sizes reads.
DEVICE_BATCH, GLOBAL_BATCH, LENGTH = "per_device_train_batch_size", "global_train_batch_size", "max_length"
_DIRECTORY = "the work directory is run_dir, by default output_dir/exp_name"
_ALL_RANKS = "all ranks share the batch, and +mesh.zero=3 shards the weights across them"

_RUN = (
    mapped(_G, "exp_name", "moe_trial", "name", WORKDIR, text=_DIRECTORY, convert=values.name),
    mapped(_G, "output_dir", "/tmp", WORKDIR, text=_DIRECTORY, convert=values.nothing),
    mapped(_G, FOLDER, "/tmp/moe_trial", WORKDIR, text=_DIRECTORY, convert=values.nothing),
    mapped(
        _G,
        "hydra.run.dir",
        "/tmp/moe_trial",
        WORKDIR,
        text="folder of Hydra's .hydra files; by default run_dir",
        convert=values.nothing,
    ),
    mapped(_G, "seed", 0, "train.seed", "data.seed", convert=values.seeds),
    mapped(
        _G,
        "log_frequency",
        1,
        "train.log_every",
        text="the MLPerf log and target_eval_loss use validations at multiples of this number of steps",
        convert=values.whole("log_frequency", "train.log_every"),
    ),
    mapped(
        _G,
        "xla_profile_step",
        -1,
        "train.profile",
        text="n: trace step n (n:n+1); -1: no trace",
        convert=values.profile,
    ),
    mapped(
        _G,
        "cache_local_dir",
        None,
        "data.cache_dir",
        convert=values.text("cache_local_dir", "data.cache_dir"),
    ),
    mapped(
        _G,
        "checkpoint_manager_path",
        None,
        "start.load_parameters_path",
        convert=values.text("checkpoint_manager_path", "start.load_parameters_path"),
    ),
    noted(_G, "local_compile_cache_dir", "/tmp/moe_trial", "nothing is compiled at run time"),
    noted(
        _G, "config_path", None, "the original never reads this key of its experiments; set model.config_path"
    ),
    noted(_G, "dry_run", False, "use --plan, which prints the memory of a run and trains nothing"),
    mapped(
        _G,
        "tensor_parallelism",
        1,
        "mesh.zero",
        text="above 1: mesh.zero=3 shards the weights across all ranks; tensor parallelism is not "
        "implemented",
        convert=of_tensor,
        note=lambda values: note("tensor_parallelism", of_tensor(values), tensor=True),
    ),
    refused(_G, "context_parallelism", 1, without("context", _ALL_RANKS)),
    *(
        refused(_G, f"{name}_parallelism", 1, without("pipeline", _ALL_RANKS))
        for name in ("pipeline", "virtual_pipeline")
    ),
)
_BATCH = "if the global batch size is not set, it is this value times --devices"
_TRAINING = (
    mapped(_G, DEVICE_BATCH, 1, "train.batch_size", text=_BATCH, convert=values.batch),
    mapped(_G, GLOBAL_BATCH, 1, "train.batch_size", "train.logical_shards", convert=values.batch),
    mapped(
        _G,
        "gradient_accumulation_steps",
        1,
        "train.micro_batch_size",
        "loss.normalize",
        text="must divide the batch; above 1: loss.normalize=micro_mean",
        convert=values.accumulation,
    ),
    mapped(_G, LENGTH, 512, "train.seq_len", convert=values.whole(LENGTH, "train.seq_len")),
    mapped(_G, "max_steps", 10, "train.steps", convert=values.whole("max_steps", "train.steps")),
    mapped(
        _G,
        "optimizer",
        "ADAMW_TORCH_XLA",
        "optim.name",
        "optim.momentum",
        text="ADAMW_TORCH_XLA and AdamW: adamw; SGD: sgd without momentum",
        convert=values.optimizer,
    ),
    mapped(_G, "lr", 2e-5, "optim.lr", convert=values.real("lr", "optim.lr")),
    mapped(
        _G,
        "weight_decay",
        0.1,
        "optim.weight_decay",
        convert=values.real("weight_decay", "optim.weight_decay"),
    ),
    mapped(_G, "max_grad_norm", 1.0, "optim.clip", text="0 or less: no clipping", convert=values.clip),
    Row(
        _G,
        "full_precision",
        False,
        "noted",
        text="model.dtype sets the precision of matmuls; true is accepted only with model.dtype=float32",
        note=values.full_precision,
    ),
    mapped(_G, "shuffle", True, "data.shuffle", text="true: on; false: off", convert=values.shuffle),
    refused(_G, "pad_token_id", -100, "padding always has id 0 and is never a target"),
    mapped(
        _G,
        "sched.name",
        "WarmupHoldPolicy",
        "optim.schedule",
        "optim.warmup",
        text="WarmupHoldPolicy: constant; CosineAnnealing: cosine",
        convert=values.schedule,
    ),
    mapped(
        _G,
        "sched.max_steps",
        10,
        "optim.schedule_steps",
        text="steps of the schedule; if equal to max_steps, optim.schedule_steps is 0 (= train.steps)",
        convert=values.schedule_length,
    ),
    mapped(
        _G,
        "sched.warmup_ratio",
        0.25,
        "optim.warmup_steps",
        "log.mllog_warmup",
        text="warmup_steps = int(warmup_ratio x sched.max_steps)",
        convert=values.warmup_ratio,
    ),
    mapped(
        _G,
        "sched.warmup_steps",
        None,
        "optim.warmup_steps",
        text="used instead of sched.warmup_ratio",
        convert=values.warmup_steps,
    ),
    mapped(
        _G,
        "sched.min_lr",
        2e-6,
        "optim.final_lr_ratio",
        text="final_lr_ratio = min_lr / lr",
        convert=values.lowest_rate,
    ),
    noted(_G, "sched.hold_steps", 10000000000000, "the learning rate stays constant to the end"),
)
_EVALUATION = (
    mapped(
        _G,
        "per_device_eval_batch_size",
        1,
        "eval.batch_size",
        text=_BATCH,
        convert=values.whole("global_eval_batch_size", "eval.batch_size"),
    ),
    mapped(
        _G,
        "global_eval_batch_size",
        1,
        "eval.batch_size",
        convert=values.whole("global_eval_batch_size", "eval.batch_size"),
    ),
    mapped(
        _G,
        "eval_frequency",
        -1,
        "train.eval_every",
        text="steps between validations; -1: ceil(24576 x 2048 / (max_length x global batch))",
        convert=values.evaluation_period,
    ),
    mapped(
        _G,
        "n_eval_examples",
        None,
        "eval.documents",
        text="used with dataset=c4_mlperf; null and 0: all documents",
        convert=values.documents,
        note=values.documents_note,
    ),
    mapped(
        _G, "do_first_eval", False, "eval.at_start", convert=values.flag("do_first_eval", "eval.at_start")
    ),
    mapped(
        _G,
        "target_eval_loss",
        0,
        "eval.target_loss",
        convert=values.real("target_eval_loss", "eval.target_loss"),
    ),
)
_GROUPS = (
    mapped(
        _G,
        "model",
        "blank_model",
        *SHAPE_FIELDS,
        text="Hydra config group: model=OPTION",
        convert=values.nothing,
    ),
    mapped(
        _G,
        "sched",
        "WarmupHoldPolicy",
        "optim.schedule",
        text="Hydra config group: sched=OPTION",
        convert=values.schedule,
    ),
    mapped(
        _G,
        "dataset",
        "c4_mlperf",
        "data.pipeline",
        "data.dataset",
        text="Hydra config group: dataset=OPTION",
        convert=values.dataset,
    ),
    mapped(_G, "experiment", None, text="Hydra config group: +experiment=OPTION", convert=values.nothing),
)

ROWS: tuple[Row, ...] = (*_GROUPS, *_RUN, *_TRAINING, *_EVALUATION, *MODEL, *DATA)
