"""Rules between the fields of a config, checked once single fields are valid. Each broken rule gives one message."""

from __future__ import annotations

from mudd_core.base.paths import url_fault
from mudd_core.base.storage import is_bucket, mapped, readable
from mudd_core.config.average import averaging_of
from mudd_core.config.families import MupConfig, TokenFormerConfig
from mudd_core.config.families.crossed import rule_fault
from mudd_core.config.families.ngrams import ngram_faults
from mudd_core.config.loss_rules import loss_faults
from mudd_core.config.mesh import PISSA
from mudd_core.config.optim import parse_groups
from mudd_core.config.own_optimizers import groups_fault, second_moment_fault
from mudd_core.config.phases import phase_faults
from mudd_core.config.pipelines import PIPELINES, listed, spec_of
from mudd_core.config.schema import LossConfig, Sections, StartConfig
from mudd_core.config.train import profile_window, save_steps
from mudd_core.config.tune import last_blocks

_MOST_TOKENS = 2**31 - 1  # ids of a batch; their number must fit into 32 bits


def faults_between(config: Sections) -> list[str]:
    """Return the broken rules, starting with the model."""
    faults = (
        _model_faults(config)
        + _train_faults(config)
        + _path_faults(config)
        + protocol_faults(config)
        + _asked_stream_faults(config)
        + data_faults(config)
    )
    if config.loss != LossConfig():
        faults += loss_faults(config)
    if not config.name or "/" in config.name or config.name.startswith("."):
        faults.append(f"name: expected a plain folder name, got '{config.name}'")
    return faults


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _model_faults(config: Sections) -> list[str]:
    model = config.model
    faults = model.faults() + (ngram_faults(model) if model.ngram_rows else [])
    if model.max_seq_len and config.train.seq_len > model.max_seq_len:
        faults.append(
            f"train.seq_len: expected at most model.max_seq_len ({model.max_seq_len}), "
            f"got {config.train.seq_len}"
        )
    return faults


def _train_faults(config: Sections) -> list[str]:
    train, optim, faults = config.train, config.optim, []
    for name, windows in (("train", train.batch_size), ("eval", config.eval.batch_size)):
        if windows * train.seq_len > _MOST_TOKENS:
            faults.append(
                f"{name}.batch_size: expected at most {_MOST_TOKENS} tokens in a batch, got "
                f"{windows} sequences of {train.seq_len} (train.seq_len)"
            )
    if not config.sample.top_p > 0:
        faults.append(f"sample.top_p: expected more than 0, got {config.sample.top_p!r}")
    shards = train.shard_count()
    if not _is_power_of_two(train.logical_shards):
        faults.append(f"train.logical_shards: expected a power of two, got {train.logical_shards}")
    if 0 < train.micro_batch_size < train.batch_size and train.batch_size % shards:
        faults.append(
            "train.micro_batch_size: needs logical shards of equal size, but train.batch_size "
            f"{train.batch_size} is no multiple of the {shards} shards; set another batch size or "
            "train.micro_batch_size=0"
        )
    if 0 < optim.schedule_steps < optim.warmup_steps:
        faults.append(
            f"optim.schedule_steps: expected 0 or at least optim.warmup_steps ({optim.warmup_steps}), "
            f"got {optim.schedule_steps}"
        )
    if train.epochs and spec_of(config.data.pipeline).endless:
        faults.append(f"train.epochs: data.pipeline={config.data.pipeline} has no end; set train.steps")
    faults += _validation_faults(config)
    if config.eval.target_loss and not (train.eval_every or config.eval.every_tokens):
        faults.append(
            "eval.target_loss: needs validations during the training; set train.eval_every or "
            "eval.every_tokens"
        )
    if optim.rule != "sp" and (fault := rule_fault(config.model, optim.rule)):
        faults.append(fault)
    model = config.model
    if optim.rule == "mup" and isinstance(model, MupConfig) and model.d_model < model.d_base:
        faults.append(
            f"model.d_base: expected at most d_model ({model.d_model}) for optim.rule=mup, got {model.d_base}"
        )
    faults += _start_faults(config.start) + _growth_faults(config) + tune_faults(config)
    for name in ("beta1", "beta2", "momentum", "muon_momentum"):
        if getattr(optim, name) >= 1:
            faults.append(f"optim.{name}: expected less than 1, got {getattr(optim, name)!r}")
    return faults + _spelling_faults(config)


def _spelling_faults(config: Sections) -> list[str]:
    """Return the errors in structured strings: train.average, train.profile, train.save_at and optim.groups."""
    train, optim, faults = config.train, config.optim, list[str]()
    try:
        averaging = averaging_of(train.average) if train.average else None
        if averaging is not None and averaging.last > train.steps and not train.epochs:
            faults.append(
                f"train.average: expected last:N with at most {train.steps} updates (train.steps), got "
                f"{train.average!r}"
            )
        if averaging is not None and averaging.last and train.to_data_end:
            faults.append(
                "train.average: last:N needs a known last update, but train.to_data_end=true ends with the data; set "
                "train.average=ema:0.999"
            )
    except ValueError as fault:
        faults.append(f"train.average: {fault}")
    if train.profile:
        try:
            if profile_window(train.profile)[0] >= train.steps:
                faults.append(
                    f"train.profile: expected FROM below train.steps ({train.steps}), got {train.profile!r}"
                )
        except ValueError as fault:
            faults.append(f"train.profile: {fault}")
    try:
        save_steps(train.save_at)
    except ValueError as fault:
        faults.append(f"train.save_at: {fault}")
    if optim.phases or optim.schedule == "phases":
        faults += phase_faults(optim, train.steps)
    if fault_of_moment := second_moment_fault(optim):
        faults.append(fault_of_moment)
    if fault_of_own := groups_fault(optim.groups):
        faults.append(fault_of_own)
    elif optim.groups:
        try:
            parse_groups(optim.groups)
        except ValueError as fault:
            faults.append(f"optim.groups: {fault}")
    return faults


def _start_faults(start: StartConfig) -> list[str]:
    faults = []
    if start.grow_init == "zero_both" and not start.force:
        faults.append(
            "start.grow_init: with zero_both, new slots can never learn (all their gradients are "
            "zero); set start.grow_init=zero_keys, or start.force=true"
        )
    if not start.load_parameters_path and (
        start.keep_optimizer or start.load_parameters_path_slot_number > 0
    ):
        faults.append("start.load_parameters_path: expected a path, because other fields of start are set")
    if start.keep_step and not start.keep_optimizer:
        faults.append(
            "start.keep_step: expected start.keep_optimizer=true with it, because a resumed run keeps both"
        )
    return faults


def _growth_faults(config: Sections) -> list[str]:
    """Return the faults of the fields for new slots, which only a TokenFormer has."""
    start, model = config.start, config.model
    if isinstance(model, TokenFormerConfig):
        return []
    changed = {
        "grow_init": start.grow_init != "random",
        "load_parameters_path_slot_number": start.load_parameters_path_slot_number > 0,
    }
    return [
        f"start.{name}: expected model.family=tokenformer, got {model.family}, which has no slots that could grow; "
        "leave it out"
        for name, is_set in changed.items()
        if is_set
    ]


def _validation_faults(config: Sections) -> list[str]:
    """Return the faults of fields that compare validations."""
    train, faults = config.train, []
    periodic = train.eval_every or config.eval.every_tokens or train.epochs
    for name, is_set in (("patience", train.patience > 0), ("keep_best", train.keep_best)):
        if is_set and not periodic:
            faults.append(
                f"train.{name}: needs validations during the training; set train.eval_every or "
                "eval.every_tokens"
            )
    if train.keep_best and not train.save:
        faults.append("train.keep_best: needs checkpoints, but train.save=false writes none")
    return faults


def _path_faults(config: Sections) -> list[str]:
    paths = {"data.cache_dir": mapped(config.data.cache_dir, config.storage.map)}
    source = readable(config.start.load_parameters_path, config.storage.map)
    if not is_bucket(source):  # a run in a bucket is downloaded at the start
        paths["start.load_parameters_path"] = source
    return [f"{name}: {fault}" for name, path in paths.items() if (fault := url_fault(path))]


def data_faults(config: Sections) -> list[str]:
    """Return the broken rules between the fields of the section `data` that a source of data.mix also has."""
    return _bad_record_faults(config) + _document_faults(config)


def _bad_record_faults(config: Sections) -> list[str]:
    """Return the fault of data.bad_records=drop for a pipeline without records."""
    data = config.data
    if data.bad_records == "fail" or spec_of(data.pipeline).has_records:
        return []
    return [
        f"data.bad_records: data.pipeline={data.pipeline} has no records that can be dropped; expected fail"
    ]


def _document_faults(config: Sections) -> list[str]:
    """Return the fault of data.document for a pipeline that reads no plain text by it."""
    data = config.data
    if data.document == "auto" or spec_of(data.pipeline).plain_text:
        return []
    return [
        f"data.document: expected auto for data.pipeline={data.pipeline}, got {data.document}; only "
        "data.pipeline=text has it"
    ]


def protocol_faults(config: Sections) -> list[str]:
    """Return a message if eval.protocol belongs to another pipeline."""
    pipeline, asked = config.data.pipeline, config.eval.protocol
    if asked == "auto":
        return []
    spec = spec_of(pipeline)
    known = [name for name in ("auto", spec.protocol, spec.earlier_protocol) if name]
    if asked in known:
        return []
    names = f"{', '.join(known[:-1])} or {known[-1]}"
    return [f"eval.protocol: expected {names} for data.pipeline={pipeline}, got {asked}"]


def stream_faults(config: Sections) -> list[str]:
    """Return the reasons why a config's data cannot be streamed, each with an alternative."""
    data, faults = config.data, []
    if not spec_of(data.pipeline).streams:
        streamed = listed((one for one in PIPELINES.values() if one.streams), "or")
        faults.append(f"stream: expected data.pipeline={streamed}, got {data.pipeline}; set data.cache=full")
    if data.tokenizer == "bpe":
        faults.append(
            "stream: expected an existing tokenizer, got data.tokenizer=bpe, which is trained on "
            "all the text first; set data.tokenizer to one, or set data.cache=full"
        )
    if config.train.epochs:
        faults.append(
            "stream: expected train.steps, got train.epochs, whose number of steps is known only "
            "after all the text is read; set train.steps, or set data.cache=full"
        )
    return faults


def _asked_stream_faults(config: Sections) -> list[str]:
    """Return the faults of stream_faults if the config requests a stream."""
    return [f"data.cache={fault}" for fault in stream_faults(config)] if config.data.cache == "stream" else []


def tune_faults(config: Sections) -> list[str]:
    """Return the broken rules of the sections tune and lora."""
    method, lora, start, faults = config.tune.method, config.lora, config.start, list[str]()
    if method not in ("lora", "full"):
        if not (count := last_blocks(method)):
            return [
                f"tune.method: expected lora, full or last:N with N blocks, such as last:2, got '{method}'"
            ]
        if count > config.model.n_layer:
            faults.append(
                f"tune.method: expected at most last:{config.model.n_layer} (model.n_layer), got '{method}'"
            )
    if method != "full" and config.train.trainable:
        faults.append(
            f"train.trainable: tune.method={method} already selects the parameters to train; leave one "
            "of the two out"
        )
    if lora.dropout >= 1:
        faults.append(f"lora.dropout: expected less than 1, got {lora.dropout:g}")
    if not lora.targets.strip(" ,"):
        faults.append("lora.targets: expected all, or names of linear layers such as q,v, got none")
    if method != "lora":
        return faults
    if not start.load_parameters_path:
        faults.append(
            "start.load_parameters_path: expected the base model of the adapters (tune.method=lora), got none"
        )
    if lora.init == "pissa" and not lora.alpha > 0:
        faults.append(f"lora.alpha: expected more than 0 for lora.init=pissa, got {lora.alpha:g}")
    if lora.init == "pissa" and lora.start_from:
        faults.append("lora.start_from: lora.init=pissa computes adapters from the base; omit one of the two")
    if lora.init == "pissa" and config.mesh.zero == 3:
        faults.append(f"lora.init: {PISSA.why}")
    for name in ("keep_optimizer", "keep_step"):
        if getattr(start, name):
            faults.append(f"start.{name}: tune.method=lora loads weights only; leave it out")
    return faults
