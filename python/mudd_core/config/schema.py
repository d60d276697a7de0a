"""The whole configuration of a run: frozen, nested, typed; every field says its meaning and unit."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from mudd_core.config.families import ModelConfig, TransformerPPConfig
from mudd_core.config.fields import LONGEST, opt
from mudd_core.config.mesh import DistConfig, MeshConfig
from mudd_core.config.optim import OptimConfig

_SEEDS = 2**64 - 1


@dataclass(frozen=True)
class DataConfig:
    """Text, tokenizer and token cache."""

    path: str = opt("", "text file or folder; empty = the sources of Python's standard library")
    tokenizer: str = opt("bpe", "bpe = trained once on the corpus, bytes, or a path of a tokenizer.json")
    vocab_size: int = opt(4096, "size of the trained bpe vocabulary, end-of-text included", "tokens", low=257)
    cache_dir: str = opt("", "folder of the token caches; empty = runs/cache", free=True)
    recipe_text: str = opt("", "text that the recipe names; a run without it says so", free=True)
    recipe_tokenizer: str = opt("", "tokenizer that the recipe names; a run without it says so", free=True)


@dataclass(frozen=True)
class TrainConfig:
    """Length and shape of the training, and what happens during it."""

    steps: int = opt(
        1000, "optimizer updates in all; shapes the schedule", "steps", low=1, flags=("max_steps",)
    )
    batch_size: int = opt(8, "sequences in one update", "sequences", low=1)
    seq_len: int = opt(
        256, "length of a sequence", "tokens", low=1, high=LONGEST, flags=("max_sequence_length",)
    )
    logical_shards: int = opt(
        8, "fixed cut of the batch that sums follow; a power of two", "shards", low=1, high=1024
    )
    micro_batch_size: int = opt(
        0, "most sequences in one run of the graph, which takes whole logical shards, at least one; changes speed "
        "and memory, never bits; 0 = the whole batch", "sequences", low=0, free=True, flags=("micro_batch",),
    )  # fmt: skip
    recompute: bool = opt(
        False, "compute cheap results again in the backward pass: less memory, the same bits", free=True
    )
    precision: str = opt(
        "fp32", "bf16: activations and operands of matmuls in 16 bits; sums, norms, softmax, loss, gradients of "
        "weights, weights and moments stay fp32 (float32 and bfloat16 are read as other names of the two)",
        choices=("fp32", "bf16"), flags=("dtype",),
    )  # fmt: skip
    seed: int = opt(
        0, "seed of the initial weights and of the data order", low=0, high=_SEEDS, flags=("random_seed",)
    )
    save_every: int = opt(
        0, "save a checkpoint every so many updates; 0 = only at the end", "steps", low=0, free=True,
        flags=("save_frequency",),
    )  # fmt: skip
    eval_every: int = opt(
        0, "validate every so many updates; 0 = only at the end", "steps", low=0, free=True,
        flags=("eval_frequency", "eval_steps"),
    )  # fmt: skip
    log_every: int = opt(
        10, "write a metrics row and a progress line every so many updates", "steps", low=1, free=True,
        flags=("logging_frequency", "logging_steps"),
    )  # fmt: skip
    stop_at: int = opt(0, "stop (saved, exit 75) after this update; 0 = never", "step", low=0, free=True)
    keep_last: int = opt(3, "checkpoints kept", "checkpoints", low=1, free=True)
    threads: int = opt(
        0, "compute threads; 0 = all cores this process may use", "threads", low=0, high=256, free=True
    )
    max_skips: int = opt(
        10, "updates skipped in a row before the run goes back (train.rewind) or gives up", "steps", low=1
    )
    rewind: int = opt(
        3, "times the run may go back to its last scheduled checkpoint and leave out the batches since, after "
        "max_skips skipped updates in a row or an update that wrote numbers that are not finite; then it ends with 76",
        "rewinds", low=0, free=True,
    )  # fmt: skip
    spike: str = opt(
        "off", "skip: no update where loss or gradient norm is above mean + 6 sigma of the last 128 updates kept",
        choices=("off", "skip"), later=True,
    )  # fmt: skip
    extend: bool = opt(
        False,
        "let a resume raise train.steps in place, where the schedule's rates up to now stay the same",
        free=True,
    )
    debug_nonfinite: bool = opt(False, "name the first node with a bad number at once (slow)", free=True)
    trainable: str = opt(
        "", "parameters that train: patterns of names such as 'blocks.*.attn.*', with commas between them and '!' "
        "before those to leave out; empty or * = all. Frozen ones take no gradients, moments or updates",
        later=True,
    )  # fmt: skip
    frozen_dtype: str = opt(
        "stored", "type that frozen matrices and tables are kept in; equal values give equal results in each: stored = "
        "that of the file or checkpoint they come from, else fp32; bf16 and fp16 round what does not fit, and say so",
        choices=("stored", "fp32", "bf16", "fp16"), later=True,
    )  # fmt: skip
    # The same in logical shards: the field's name and unit in earlier versions.
    micro_batch: InitVar[int] = -1

    def __post_init__(self, micro_batch: int) -> None:
        if isinstance(self.trainable, str) and self.trainable.strip() == "*":
            object.__setattr__(self, "trainable", "")
        names = {"float32": "fp32", "bfloat16": "bf16"}
        if isinstance(self.precision, str) and self.precision in names:  # one name: a resume finds no change
            object.__setattr__(self, "precision", names[self.precision])
        if micro_batch == -1:
            return
        numbers = (micro_batch, self.batch_size, self.logical_shards)
        whole = all(type(number) is int and 0 <= number < 2**31 for number in numbers)
        # check_config names what is no number.
        size = self.sequences_of(micro_batch) if whole else micro_batch
        object.__setattr__(self, "micro_batch_size", size)

    def shard_count(self) -> int:
        """Logical shards in use: logical_shards, capped at the largest power of two not above the batch."""
        return min(self.logical_shards, 1 << (max(1, self.batch_size).bit_length() - 1))

    def sequences_of(self, shards: int) -> int:
        """Sequences in so many logical shards; 0 where that is the whole batch, or no shard fits the batch evenly."""
        count = max(1, self.shard_count())
        return shards * self.batch_size // count if shards < count and self.batch_size % count == 0 else 0


@dataclass(frozen=True)
class LossConfig:
    """Loss."""

    normalize: str = opt(
        "valid", "denominator: targets that count, all slots, or the mean over micro-batches of their means",
        choices=("valid", "all_slots", "micro_mean"),
    )  # fmt: skip


@dataclass(frozen=True)
class EvalConfig:
    """Validation."""

    max_batches: int = opt(
        0, "batches of every validation, that of `validate` too; 0 = all", "batches", low=0, free=True
    )
    batch_size: int = opt(
        0, "sequences in one validation batch; 0 = train.batch_size", "sequences", low=0, free=True
    )


@dataclass(frozen=True)
class SampleConfig:
    """Text generation."""

    temperature: float = opt(0.8, "divides the logits; 0 = always the likeliest token", low=0.0, free=True)
    top_k: int = opt(0, "keep only the k likeliest tokens; 0 = all", "tokens", low=0, free=True)
    top_p: float = opt(
        0.95, "keep the likeliest tokens up to this mass; 1 = all", "fraction", low=0.0, high=1.0, free=True
    )  # above 0: check.py
    max_tokens: int = opt(200, "tokens to write", "tokens", low=1, free=True)
    seed: int = opt(0, "seed of the draws", low=0, high=_SEEDS, free=True)


@dataclass(frozen=True)
class StartConfig:
    """What a new run starts from, if not from initial values; later starts of the run do not look at it."""

    load_parameters_path: str = opt(
        "",
        "weights to start from: a work directory, a checkpoint's step folder, a safetensors file; empty = none",
    )
    load_parameters_path_slot_number: int = opt(
        -1, "TokenFormer: slots of the loaded q, k and v that are real; -1 = all of them", "slots", low=-1
    )
    grow_init: str = opt(
        "random", "TokenFormer: values of slots that are not loaded: initial ones, keys zero, or keys and values zero",
        choices=("random", "zero_keys", "zero_both"),
    )  # fmt: skip
    keep_optimizer: bool = opt(
        False,
        "take over the moments and their count too, zeros for what is new; else the optimizer starts afresh",
    )
    force: bool = opt(False, "allow zero_both, whose new slots can never learn")


@dataclass(frozen=True)
class Config:
    """A run. Config files return one of these from get_config()."""

    name: str = opt("run", "name of the run; the default work directory is runs/<name>", free=True)
    model: ModelConfig = field(default_factory=TransformerPPConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    start: StartConfig = field(default_factory=StartConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    dist: DistConfig = field(default_factory=DistConfig)
