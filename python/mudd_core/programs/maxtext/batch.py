"""Batch sizes of MaxText's forks: convert per_device_* sizes to global batches, and write notes about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from mudd_core.base.errors import UserError
from mudd_core.base.types import is_number
from mudd_core.programs.maxtext.keys import DATASET
from mudd_core.programs.maxtext.keys_model import BLOCK
from mudd_core.programs.maxtext.keys_training_values import EVAL_BATCH, TRAIN_BATCH
from mudd_core.programs.mesh_sizes import ranks_note, sequences, whole_batch
from mudd_core.programs.program import DEVICES
from mudd_core.programs.row import Value
from mudd_core.programs.table import Setting

_AUTHORS = {"llama2": 8}  # the authors' number of devices; 16 for the other blocks


def of_all_devices(settings: Mapping[str, Setting], devices: int) -> dict[str, Setting]:
    """Replace per-device batch sizes by global ones; raise UserError unless a global batch size is an integer."""
    result = dict(settings)
    for name in (TRAIN_BATCH, EVAL_BATCH):
        setting = settings.get(name)
        if setting is not None and (size := _number(setting.value)) is not None:
            result[name] = replace(setting, value=_whole(name, size, devices))
    return result


def with_evaluation(
    settings: Mapping[str, Setting], before: Mapping[str, Setting], options: Mapping[str, str]
) -> tuple[dict[str, Setting], str]:
    """Scale the evaluation batch like a training batch that the command sets for several devices.

    Return the settings and a note. before: the settings without the command's keys. Nothing changes if the command sets
    the evaluation batch or --devices.
    """
    train, evaluated = settings.get(TRAIN_BATCH), settings.get(EVAL_BATCH)
    result = dict(settings)
    if (
        DEVICES in options
        or train is None
        or not train.word
        or evaluated is None
        or evaluated.word
        or _grain(settings)
    ):
        return result, ""
    sizes = [_number(setting.value) for setting in (before.get(TRAIN_BATCH, train), train, evaluated)]
    of_a_device, typed, size = (Fraction(str(value or 0)) for value in sizes)
    if not 0 < of_a_device < typed or (size * typed / of_a_device).denominator > 1:
        return result, ""
    whole = int(size * typed / of_a_device)
    result[EVAL_BATCH] = replace(evaluated, value=whole, word=train.word)
    return result, (
        f"{train.word}: one device here, so an update has {sequences(int(typed))}, "
        f"{float(typed / of_a_device):g} times the {float(of_a_device):g} of "
        f"{train.file or 'the file'}; an evaluation batch is scaled in the same way to {whole:,}; "
        f"set {EVAL_BATCH} for another size"
    )


def batch_notes(settings: Mapping[str, Setting], devices: int, ranks: int, follows: str = "") -> list[str]:
    """Return notes about the batches.

    settings: the settings with per-device sizes. follows: the note of with_evaluation.
    """
    if follows:
        return ["; ".join(filter(None, (follows, ranks_note(devices, ranks))))]
    return [*_training_note(settings, devices, ranks), *_evaluation_note(settings)]


def _grain(settings: Mapping[str, Setting]) -> bool:
    return settings.get(DATASET, Setting("")).value == "grain"


def _number(value: Value) -> float | None:
    return value if is_number(value) else None


def _whole(name: str, size: float, devices: int) -> int:
    try:
        return whole_batch(name, size, devices)
    except ValueError as error:
        raise UserError(f"[maxtext] {error}") from error


def _training_note(settings: Mapping[str, Setting], devices: int, ranks: int) -> list[str]:
    setting = settings.get(TRAIN_BATCH)
    if setting is None or (size := _number(setting.value)) is None:
        return []
    authors = _AUTHORS.get(str(settings.get(BLOCK, Setting("llama2")).value), 16)
    batch = whole_batch(TRAIN_BATCH, size, devices)
    here = "one device here" if devices == 1 else f"{devices} devices"
    text = f"{TRAIN_BATCH}={size:g}: {here}, so an update has {sequences(batch)}"
    if size < 1:
        text += f" (the original reads {devices} and discards the others; here all are trained on)"
    if devices != authors and (theirs := size * authors) >= 1:
        text += f"; the authors' {authors} devices had {theirs:g}: {DEVICES}={authors} sets their batch"
    return ["; ".join(filter(None, (text, ranks_note(devices, ranks))))]


def _evaluation_note(settings: Mapping[str, Setting]) -> list[str]:
    setting = settings.get(EVAL_BATCH)
    if setting is None or not setting.word or not _grain(settings):
        return []
    return [f"{setting.word}: has no effect: {DATASET}=grain validates in batches of the training size"]
