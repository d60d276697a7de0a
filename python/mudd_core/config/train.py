"""Fields of the training loop: length, batch, validation, saves and stops."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from mudd_core.config.fields import LARGEST, LONGEST, opt

_SEEDS = 2**64 - 1
MICRO_BATCH_SIZE = "train.micro_batch_size"


def shards_per_run(batch_size: int, shards: int, micro_batch_size: int) -> int:
    """Return the logical shards in one graph run: a power of two, at least one. All shards have the same size."""
    count = 1
    while count * 2 * (batch_size // shards) <= micro_batch_size:
        count *= 2
    return count


def save_steps(text: str) -> frozenset[int]:
    """Parse the steps of train.save_at; raise ValueError if the string is malformed."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if not all(part.isascii() and part.isdecimal() and int(part) <= LARGEST for part in parts):
        raise ValueError(f"expected steps separated by commas, such as 0,1,2,4, got {text!r}")
    return frozenset(map(int, parts))


def profile_window(text: str) -> tuple[int, int]:
    """Parse FROM and TO of train.profile; raise ValueError if the string is malformed."""
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and int(first) < int(last)):
        raise ValueError(f"expected FROM:TO, two steps in order, got {text!r}")
    return int(first), int(last)


@dataclass(frozen=True)
class TrainConfig:
    """Length of the training, batch, validation, saves and stops."""

    steps: int = opt(
        1000,
        "total number of optimizer updates; the schedule has this length",
        "steps",
        low=1,
        flags=("max_steps",),
    )
    batch_size: int = opt(8, "sequences per update", "sequences", low=1)
    seq_len: int = opt(
        256, "tokens per sequence", "tokens", low=1, high=LONGEST, flags=("max_sequence_length",)
    )
    logical_shards: int = opt(
        8,
        "number of parts of the batch, whose gradients are summed in a fixed order; a power of two",
        "shards",
        low=1,
        high=1024,
    )
    micro_batch_size: int = opt(
        0,
        "most sequences per micro-batch, rounded down to a power-of-two number of logical shards, at "
        "least one; 0 = the whole batch. It affects speed and memory but not the results. Only with "
        "loss.normalize=micro_mean it changes the loss, so a resume must keep it",
        "sequences",
        low=0,
        free=True,
        flags=("micro_batch",),
    )
    recompute: bool = opt(
        False, "recompute cheap activations in the backward pass: less memory, the same bits", free=True
    )
    precision: str = opt(
        "fp32",
        "bf16: activations and matmul inputs have 16 bits; sums, norms, softmax, loss, weight "
        "gradients, weights and moments stay fp32. The names float32 and bfloat16 are accepted too",
        choices=("fp32", "bf16"),
        flags=("dtype",),
    )
    seed: int = opt(
        0,
        "seed of the initial weights and of random draws, and of the data order unless data.seed is set",
        low=0,
        high=_SEEDS,
        flags=("random_seed",),
    )
    save_every: int = opt(
        0,
        "updates between checkpoints; 0 = save only at the end",
        "steps",
        low=0,
        free=True,
        flags=("save_frequency",),
    )
    eval_every: int = opt(
        0,
        "updates between validations; 0 = validate only at the end",
        "steps",
        low=0,
        free=True,
        flags=("eval_frequency", "eval_steps"),
    )
    period_start: int = opt(
        0,
        "number of updates before the intervals of save_every and eval_every start; with 1 and an interval of 100, "
        "these are updates 101, 201, ...",
        "steps",
        low=0,
        free=True,
        later=True,
    )
    log_every: int = opt(
        10,
        "updates between entries of metrics.jsonl and progress lines",
        "steps",
        low=1,
        free=True,
        flags=("logging_frequency", "logging_steps"),
    )
    stop_at: int = opt(
        0, "save and stop with exit code 75 after update N; 0 = never", "steps", low=0, free=True
    )
    keep_last: int = opt(3, "number of checkpoints to keep; 0 = all", "checkpoints", low=0, free=True)
    keep_every: int = opt(
        0,
        "never delete the checkpoints of steps that are multiples of N; 0 = delete as train.keep_last says",
        "steps",
        low=0,
        free=True,
    )
    save_at: str = opt(
        "",
        "more steps to save, separated by commas, such as 0,1,2,4 (0 = the initial weights); these "
        "checkpoints are never deleted; empty = none",
        free=True,
        later=True,
    )
    keep_best: bool = opt(
        False,
        "save after each validation with the lowest loss so far, and keep this checkpoint in "
        "addition to the newest ones; --step=best reads it",
        free=True,
        later=True,
    )
    patience: int = opt(
        0,
        "end the run after N consecutive validations whose loss is not below the best one; 0 = never",
        "validations",
        low=0,
        free=True,
        later=True,
    )
    save: bool = opt(
        True, "write checkpoints; without them a stopped run starts again from step 0", free=True
    )
    save_async: bool = opt(
        False,
        "write checkpoints in a thread while the next steps run; the files and the results stay the same. The update "
        "waits if more than save_buffer bytes are left to write. The last save of a run is never asynchronous",
        free=True,
        later=True,
    )
    save_buffer: int = opt(
        256 << 20,
        "with save_async, the most memory of a rank for copies of bytes not yet written at the next update; "
        "0 = no copies",
        "bytes",
        low=0,
        high=2**40,
        free=True,
        later=True,
    )
    save_policy: str = opt(
        "every",
        "every = save every save_every updates; best = save only after a validation with the lowest "
        "loss so far",
        choices=("every", "best"),
        later=True,
    )
    threads: int = opt(
        0, "compute threads; 0 = all cores this process may use", "threads", low=0, high=256, free=True
    )
    max_skips: int = opt(
        10,
        "number of consecutive skipped updates after which the run rewinds (train.rewind) or ends",
        "steps",
        low=1,
    )
    rewind: int = opt(
        3,
        "number of times that the run may return to its last scheduled checkpoint and skip the "
        "batches since then. It returns after max_skips consecutive skipped updates, or after an "
        "update that wrote non-finite weights. If it may not return, it exits with code 76",
        "rewinds",
        low=0,
        free=True,
    )
    spike: str = opt(
        "off",
        "skip = skip an update if its loss or gradient norm is above mean + 6 sigma of the last 128 "
        "accepted updates",
        choices=("off", "skip"),
        later=True,
    )
    extend: bool = opt(
        False,
        "let a resume raise train.steps, if the learning rates of past updates stay the same",
        free=True,
    )
    debug_nonfinite: bool = opt(
        False, "name the first graph node with a non-finite value at once (slow)", free=True
    )
    trainable: str = opt(
        "",
        "trainable parameters: name patterns such as 'blocks.*.attn.*', separated by commas; '!' "
        "before a pattern excludes; empty or * = all. All other parameters are frozen, without "
        "gradients and moments",
        later=True,
    )
    frozen_dtype: str = opt(
        "stored",
        "storage type of frozen matrices and embeddings; stored = the type in their file or "
        "checkpoint, else fp32. bf16 and fp16 print a note if they round values; only this rounding "
        "changes results",
        choices=("stored", "fp32", "bf16", "fp16"),
        later=True,
    )
    epochs: int = opt(
        0,
        "length of the training in passes over the data, with a validation and a save after each "
        "pass; 0 = use train.steps",
        "epochs",
        low=0,
        later=True,
    )
    to_data_end: bool = opt(
        False,
        "end after the last whole batch of data.epochs passes, even if train.steps is larger; the "
        "schedule does not become shorter",
        free=True,
        later=True,
    )
    average: str = opt(
        "",
        "mean of the trained weights over updates, kept in addition to them: ema:DECAY (such as ema:0.999) or last:N "
        "(the last N updates of the run); empty = none. --average reads it",
        free=True,
        later=True,
    )
    profile: str = opt("", "FROM:TO = write a trace of the steps FROM + 1 to TO; empty = none", free=True)
    # The same value in logical shards, as earlier versions named and measured it.
    micro_batch: InitVar[int] = -1

    def __post_init__(self, micro_batch: int) -> None:
        if isinstance(self.trainable, str) and self.trainable.strip() == "*":
            object.__setattr__(self, "trainable", "")
        names = {"float32": "fp32", "bfloat16": "bf16"}
        # Replace an alias by one name, so that a resume finds no change.
        if isinstance(self.precision, str) and self.precision in names:
            object.__setattr__(self, "precision", names[self.precision])
        if micro_batch == -1:
            return
        numbers = (micro_batch, self.batch_size, self.logical_shards)
        whole = all(type(number) is int and 0 <= number < 2**31 for number in numbers)
        # check_config reports values that are not numbers.
        size = self.sequences_of(micro_batch) if whole else micro_batch
        object.__setattr__(self, "micro_batch_size", size)

    def shard_count(self) -> int:
        """Return the logical shards in use: logical_shards, capped at the largest power of two up to the batch size."""
        return min(self.logical_shards, 1 << (max(1, self.batch_size).bit_length() - 1))

    def ends_period(self, every: int, step: int) -> bool:
        """Return True if update `step` ends a period of `every` updates; if `every` is 0, no update does."""
        counted = step - self.period_start
        return every > 0 and counted > 0 and counted % every == 0

    def sequences_per_run(self) -> int:
        """Return the sequences in one graph run of one process: the effective micro_batch_size."""
        shards, size = self.shard_count(), self.micro_batch_size
        if not 0 < size < self.batch_size or self.batch_size % shards:
            return self.batch_size
        return shards_per_run(self.batch_size, shards, size) * (self.batch_size // shards)

    def sequences_of(self, shards: int) -> int:
        """Return the sequences in `shards` logical shards; 0 if that is the whole batch or not an even split."""
        count = max(1, self.shard_count())
        return shards * self.batch_size // count if shards < count and self.batch_size % count == 0 else 0
