"""Default settings of fine-tuning. Each choice has a reason and applies only if the arguments do not set the field."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from mudd_core.base.errors import UserError
from mudd_core.cli.tune.base import Adapter, Base
from mudd_core.cli.tune.fields import CHAT, require_conversations, require_model
from mudd_core.config import (
    Config,
    DataConfig,
    EvalConfig,
    StartConfig,
    apply_overrides,
    check_config,
    mixture_of,
    split_words,
    typed_names,
)
from mudd_core.config.fields import Scalar, replace_path, walk
from mudd_core.config.train import MICRO_BATCH_SIZE
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.chat_data import ChatData
from mudd_core.engine.lora import adaptable_names, adapted_names
from mudd_core.run.build.rows import opened_teacher, row_shape

_LONGEST = 1024  # tokens of a sequence; longer examples are dropped
_EPOCHS, _PAIR_EPOCHS = 3, 1
_EXAMPLES = 8
_WARM_UP = 0.03
_TOKENS_AT_ONCE = 2048  # tokens per graph run
_RATES = {"lora": 2e-4, "full": 2e-5}
_PAIR_RATES = {"lora": 1e-5, "full": 1e-6}
_WHY_PAIR_RATE = "a low rate: pairs say only which of two answers is better"
_PAIRS = 8
_WHY_RATE = {
    "lora": "the usual learning rate of LoRA, ten times the rate of full fine-tuning",
    "full": "a low rate changes the weights little, so that the base keeps what it knows",
}


@dataclass
class Recipe:
    """A config, and a line for each chosen field.

    typed: fields that the arguments set, which stay. plain: the config without these arguments. counted: the fraction
    of targets that contribute to the loss.
    """

    config: Config
    typed: set[str]
    plain: Config
    counted: float = 1.0
    lines: list[str] = field(default_factory=list)

    def choose(self, path: str, value: Scalar, why: str) -> None:
        """Set a field and record the reason, unless the arguments set it."""
        if path in self.typed:
            value, why = _value(self.config, path), "as the arguments say"
        else:
            self.config = replace_path(self.config, path, value)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        self.lines.append(f"  {f'{path}={shown}':<32} {why}")

    @property
    def kept(self) -> Config:
        """The config for later starts, without arguments that may change then, such as the step to stop at."""
        config = self.config
        for info in walk(self.plain):
            if info.path in self.typed and info.free_on_resume:
                config = replace_path(config, info.path, info.value)
        return config


def recipe_of(
    base: Base, data: str, name: str, words: Sequence[str], adapter: Adapter | None = None, ranks: int = 1
) -> Recipe:
    """Return the recipe for a base and a file of conversations; build their token cache if it is missing.

    words: the overrides. adapter: the initial adapters. ranks: the number of ranks that will train; each needs a
    sequence of every batch. Raise
    UserError for data that cannot be trained on, and for fields that break a rule.
    """
    config = Config(
        name=name,
        model=base.model,
        data=DataConfig(pipeline=CHAT, path=data, tokenizer=base.tokenizer),
        eval=EvalConfig(at_start=True),
        start=StartConfig(load_parameters_path=str(base.run)),
    )
    config = replace_path(config, "train.seq_len", min(base.model.max_seq_len, _LONGEST))
    overrides = split_words(list(words), config)
    typed = {item.path for item in overrides}
    recipe = Recipe(apply_overrides(config, overrides), typed, config)
    require_model(recipe.config, base.model)
    require_conversations(recipe.config)
    _choose_method(recipe)
    if adapter is not None:
        _choose_adapter(recipe, adapter)
    if recipe.config.tune.method == "lora" and mixture_of(recipe.config.model) is not None:
        recipe.lines.append(f"  {'':<32} {_frozen(recipe.config)}")
    _choose_rows(recipe, ranks)
    check_config(recipe.config, typed_names(overrides))
    if recipe.config.loss.teacher:  # refuse a wrong file before the run's config is saved
        opened_teacher(recipe.config, prepare(recipe.config))
    return recipe


def _choose_method(recipe: Recipe) -> None:
    recipe.choose(
        "tune.method", "lora", "adapters with frozen weights: little memory, the base stays as it is"
    )
    kind = "lora" if recipe.config.tune.method == "lora" else "full"
    if recipe.config.loss.of_pairs:
        recipe.choose("optim.lr", _PAIR_RATES[kind], _WHY_PAIR_RATE)
    else:
        recipe.choose("optim.lr", _RATES[kind], _WHY_RATE[kind])
    recipe.choose("optim.schedule", "linear", "falls to zero, so that the last batches do not decide")
    recipe.choose("optim.final_lr_ratio", 0.0, "the end of that line")
    recipe.choose("optim.weight_decay", 0.0, "few updates: decay would only pull the base's weights to zero")
    recipe.choose("optim.clip", 1.0, "one odd example moves the weights no further than the others")


def _frozen(config: Config) -> str:
    """Return a sentence about the parts of a mixture that have no adapters."""
    stacks = adaptable_names(config.model)[1]
    if not set(stacks).isdisjoint(adapted_names(config.model, config.lora.targets)):
        return "routers stay frozen"
    return "experts and routers stay frozen; lora.targets=all,gate_up,down adapts experts"


def _choose_adapter(recipe: Recipe, adapter: Adapter) -> None:
    """Set the initial adapters' settings; raise UserError for arguments that contradict them."""
    if recipe.config.tune.method != "lora":
        raise UserError(
            "[tune] --adapter: starts adapters (tune.method=lora), got "
            f"tune.method={recipe.config.tune.method}; leave one of the two out, or give the merged "
            "model as --base"
        )
    lora = adapter.lora
    decided: dict[str, Scalar] = {"rank": lora.rank, "alpha": lora.alpha, "targets": lora.targets}
    if typed := sorted(recipe.typed & {f"lora.{name}" for name in (*decided, "start_from", "init")}):
        raise UserError(f"[tune] {typed[0]}: the adapter {adapter.name} decides it; leave it out")
    for name, value in decided.items():
        recipe.choose(f"lora.{name}", value, f"of the adapter {adapter.name}")
    recipe.choose("lora.dropout", lora.dropout, f"of the adapter {adapter.name}")
    recipe.choose("lora.start_from", adapter.path, "where its values are kept")


def _choose_rows(recipe: Recipe, ranks: int) -> None:
    """Choose the length of sequences, the batch size, and the fields that depend on them."""
    found = prepare(recipe.config)
    assert isinstance(found, ChatData)
    lengths = found.train.slots
    if not lengths.size:
        found.rows("train", row_shape(recipe.config))  # raises UserError with the reason
    cap = recipe.config.train.seq_len
    longest, dropped = int(lengths.max()), found.train.dropped + found.valid.dropped
    longer = f"; {dropped:,} longer ones are left out (data.too_long)" if dropped else ""
    fitting = min(cap, max(256, -(-longest // 64) * 64))
    alone = found.of_pairs and recipe.config.loss.packed_pairs == 1
    what = "an answer each" if alone else "packed answers" if found.of_pairs else "packed examples"
    recipe.choose(
        "train.seq_len", fitting, f"sequences of {what}, the longest of {longest + 1:,} tokens{longer}"
    )
    recipe.counted = found.counted_share
    recipe.lines.insert(0, _data_line(found, recipe.counted))
    rows = found.rows("train", row_shape(recipe.config)).rows
    each = lengths.size / rows
    if found.of_pairs:
        _choose_pairs(recipe, rows, each, ranks)
    else:
        recipe.choose("train.batch_size", *_batch(rows, each, ranks))
    train = recipe.config.train
    whole = max(1, rows // train.batch_size)
    passes = train.epochs or (_PAIR_EPOCHS if found.of_pairs else _EPOCHS)
    steps = passes * whole if train.epochs else max(1, round(passes * rows / train.batch_size))
    recipe.choose(
        "train.steps",
        steps,
        f"{passes} epoch{'s' * (passes != 1)} of {rows:,} sequences; more epochs mostly memorize the examples",
    )
    steps = recipe.config.train.steps
    recipe.choose("optim.warmup_steps", math.ceil(_WARM_UP * steps), "3 % of the steps, while moments settle")
    recipe.choose("train.eval_every", whole, "the held-out examples after each epoch")
    recipe.choose("train.save_every", whole, "a checkpoint after each epoch")
    at_once = max(2 if found.of_pairs else 1, _TOKENS_AT_ONCE // train.seq_len)
    if train.batch_size > at_once and MICRO_BATCH_SIZE not in recipe.config.bound_fields:
        recipe.choose(MICRO_BATCH_SIZE, at_once, "less memory, the same bits")
    if found.of_pairs and train.precision == "fp32":  # in bf16 it would also pack each matrix twice a step
        recipe.choose("train.recompute", True, "less memory, the same bits and speed")


def _data_line(found: ChatData, counted: float) -> str:
    """Return the line about the examples, or the pairs of answers."""
    examples, held = found.documents
    lengths, what = found.train.slots, "pairs" if found.of_pairs else "examples"
    refused = f"; left out: {found.kept.facts['refused']}" if found.kept.facts.get("refused") else ""
    return (
        f"data: {examples:,} {what}, {lengths.sum():,} tokens an epoch ({lengths.sum() / examples:.0f} each), {held:,} "
        f"held out ({held / (held + examples):.0%}); {counted:.1%} of the targets contribute to the loss{refused}"
    )


def _choose_pairs(recipe: Recipe, rows: int, each: float, ranks: int) -> None:
    """Choose the batch of pairs, and the logical shards, each with whole pairs.

    rows: the sequences per epoch. each: the pairs in two sequences.
    """
    twos = min(_power_of_two(_PAIRS / each), 1 << ((rows // 2).bit_length() - 1))
    twos = max(twos, 1 << (ranks - 1).bit_length())
    why = f"{twos} pairs: each is a chosen and a rejected answer"
    if recipe.config.loss.packed_pairs > 1:
        why = f"{twos * each:.1f} pairs: two packed sequences have {each:.1f} of them"
    recipe.choose("train.batch_size", 2 * twos, why)
    batch, shards = recipe.config.train.batch_size, recipe.config.train.logical_shards
    while shards > 1 and batch % (2 * shards):
        shards //= 2
    recipe.choose("train.logical_shards", shards, "parts of the batch with whole pairs")


def _batch(rows: int, each: float, ranks: int) -> tuple[int, str]:
    """Return the batch size and its reason. rows: the sequences per epoch. each: the examples per sequence.

    The batch size is at least the number of ranks if an epoch has enough sequences, because each rank needs one.
    """
    alone = min(_power_of_two(_EXAMPLES / each), 1 << (rows.bit_length() - 1))
    least = 1 << (ranks - 1).bit_length()
    batch = max(alone, least) if least <= rows else alone
    why = f"{batch * each:.1f} examples: a packed sequence has {each:.1f} of them"
    if batch == alone:
        return batch, why
    return (
        batch,
        f"a sequence for each of {ranks} ranks (one process would use {alone} by default); {why}",
    )


def _power_of_two(number: float) -> int:
    """Return the nearest power of two, at least 1, so that batches split evenly into micro-batches and over ranks."""
    return 1 << max(0, round(math.log2(max(number, 1))))


def _value(config: Config, path: str) -> Scalar:
    return next(info.value for info in walk(config) if info.path == path)
