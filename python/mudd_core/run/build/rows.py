"""The sequences of a run, for training, and the batches for validation and test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.types import Array
from mudd_core.config import Config
from mudd_core.run.build.protocols import batches_of, fewer_than_a_batch

if TYPE_CHECKING:
    from mudd_core.data.cache.teacher_file import TeacherFile
    from mudd_core.data.pipelines import Prepared, Rows, RowShape


def row_shape(config: Config) -> RowShape:
    """Return the fields of a config that determine the sequences of its data."""
    from mudd_core.data.pipelines import RowShape

    train = config.train
    return RowShape(train.seq_len, train.batch_size, config.order_seed)


def opened_teacher(config: Config, text: Prepared) -> TeacherFile | None:
    """Return the file of loss.teacher, or None; raise UserError for a file of another tokenizer or other data."""
    from mudd_core.data.pipelines.taught import require_same_data

    file = teacher_file(config)
    if file is not None:
        require_same_data(file, text, row_shape(config))
    return file


def teacher_file(config: Config) -> TeacherFile | None:
    """Return the file of loss.teacher; None if the config has none."""
    from mudd_core.data.cache.teacher_file import TeacherFile

    asked = config.loss.teacher
    return TeacherFile(local(asked, "[loss.teacher]"), "[loss.teacher]") if asked else None


def training_rows(config: Config, text: Prepared) -> Rows:
    """Return the training sequences, with the probabilities of loss.teacher."""
    from mudd_core.data.pipelines.taught import taught

    return taught(_training_rows(config, text), opened_teacher(config, text), "train")


def _training_rows(config: Config, text: Prepared) -> Rows:
    from mudd_core.data.pipelines.ids_data import FirstBatch

    rows, train = text.rows("train", row_shape(config)), config.train
    whole = rows.batches(config.data.epochs) if config.data.epochs else None
    if whole is not None and whole < (1 if train.to_data_end else train.steps):
        way_out = f"set train.steps={whole} or data.epochs=0" if whole else "use a smaller batch or more data"
        raise UserError(
            f"[data.epochs] {config.data.epochs} passes have {whole:,} batches of {train.batch_size} "
            f"sequences, and train.steps={train.steps} needs more; {way_out}"
        )
    if config.data.mix_until != "steps":
        require_first_batch(config, rows.batches(0) or 0)
    if config.data.repeat_batch:
        if rows.core is None or config.data.mix:
            return FirstBatch(rows, config.train.batch_size)
        rows.core.repeat(config.train.batch_size)
    return rows


def require_first_batch(config: Config, batches: int) -> None:
    """Raise UserError if the mixture has no batch. batches: the whole batches before its end."""
    if not batches:
        raise UserError(
            f"[data.mix_until] {config.data.mix_until}: the mixture ends before its first batch of "
            f"{config.train.batch_size} sequences; use more data, a smaller train.batch_size, or data.mix_until=steps"
        )


def ended_by_data(config: Config, rows: Rows) -> Config:
    """Return the config with the steps of the data, if train.to_data_end or data.mix_until shortens the run to them."""
    mix_ends = config.data.mix_until != "steps"
    if not mix_ends and not (config.train.to_data_end and config.data.epochs):
        return config
    whole = rows.batches(config.data.epochs)
    return config if whole is None or whole >= config.train.steps else shortened(config, whole)


def shortened(config: Config, steps: int) -> Config:
    """Return the config of a run that ends earlier, with the learning rates of the whole run."""
    optim = replace(config.optim, schedule_steps=config.schedule_steps)
    return replace(config, train=replace(config.train, steps=steps), optim=optim)


def data_end_note(config: Config, steps: int) -> str:
    """Return the note for data with fewer steps than the config."""
    data = config.data
    why = f"data.mix_until={data.mix_until}" if data.mix else f"data.epochs={data.epochs}"
    return (
        f"the data have {steps:,} batches ({why}): the run ends at step {steps:,}, before "
        f"train.steps={config.train.steps:,}"
    )


def held_out_rows(config: Config, text: Prepared, split: str = "valid") -> Rows:
    """Return the sequences of the split `valid` or `test`; raise UserError for data without it."""
    from mudd_core.data.pipelines import test_rows

    shape = row_shape(config)
    return test_rows(config, text, shape) if split == "test" else text.rows("valid", shape)


def taught_batches(config: Config, text: Prepared) -> Iterable[Mapping[str, Array]]:
    """Return the batches of validation_batches, with the probabilities of loss.teacher."""
    from mudd_core.data.pipelines.taught import taught

    rows = taught(held_out_rows(config, text), opened_teacher(config, text), "valid")
    return batches_of(config, rows, text.tokenizer, text.documents[1])


def validation_batches(config: Config, text: Prepared) -> Iterable[Mapping[str, Array]]:
    """Return batches (arrays by name) of held-out sequences, by the protocol of the pipeline."""
    return batches_of(config, held_out_rows(config, text), text.tokenizer, text.documents[1])


_MATCH = (
    "set data.eval_match=TEXT (eval_split=TEXT in MaxText's commands) to use the files of data.path "
    "with TEXT in their path"
)


def no_validation(config: Config, records: int) -> str:
    """Return a note that the run cannot validate. Raise UserError if one of its fields needs validations.

    records: the records of the validation files, which have no whole batch.
    """
    data, needs = config.data, ""
    if config.train.save_policy == "best":
        needs = "train.save_policy=best"
    elif config.eval.target_loss:
        needs = "eval.target_loss"
    elif config.train.patience:
        needs = "train.patience"
    elif config.train.keep_best:
        needs = "train.keep_best"
    if needs and records:
        raise UserError(f"[eval.batch_size] {needs} needs validations: {fewer_than_a_batch(config, records)}")
    if needs:
        raise UserError(
            f"[data.eval_path] {needs} needs validation files, got none; set data.eval_path=FILES, "
            f"or {_MATCH}"
        )
    if records:
        return f"the run trains without validation: {fewer_than_a_batch(config, records)}"
    why = f"no path of {data.path} contains {data.eval_match!r} (data.eval_match)" if data.eval_match else ""
    return f"the run trains without validation: {why or 'neither data.eval_path nor data.eval_match is set'}"
