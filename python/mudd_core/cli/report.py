"""Print the text of `report` about a run, or write its page instead."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.show.printable import beginning_of, visible
from mudd_core.base.show.tables import text_table
from mudd_core.base.show.terminal import screen
from mudd_core.base.surroundings import typed_program
from mudd_core.base.units import duration
from mudd_core.config import Config, config_hash, differences
from mudd_core.config.describe import shown
from mudd_core.config.pipelines import spec_of
from mudd_core.run.records.facts import bits_text, guessing_loss, guessing_text, vocabulary_in_use
from mudd_core.run.report.curve import NOT_FINITE, curve_and_last_rows, shown_number
from mudd_core.run.report.limits import limit
from mudd_core.run.report.sources import latest, source_table
from mudd_core.run.report.spikes import spikes_in, spikes_line
from mudd_core.run.report.time_use import time_use
from mudd_core.run.store.best_step import best_step
from mudd_core.run.store.checkpoints import Checkpoints
from mudd_core.run.store.json_files import facts_of, read_saved_config
from mudd_core.run.store.last_step import LastStep, last_step
from mudd_core.run.store.metrics import Row, rows_of, samples_of
from mudd_core.run.store.own_code import MODEL, run_copies
from mudd_core.run.store.run_folder import RunFolder

_SHOWN_TIME = 0.001  # fraction of the time of a phase that is printed


def print_report(config: Config, folder: RunFolder, tokenizer: str | None) -> None:
    """Print the result of a run, its curve and last metrics, its settings, validations and checkpoints.

    tokenizer: of --tokenizer, which decodes the ids of a run without one.
    """
    rows = list(rows_of(folder))
    validations = [row for row in rows if "val_loss" in row]
    _say(f"{config.name} in {folder}: {_result(config, rows, last_step(folder))}")
    for line in curve_and_last_rows(config.name, rows, screen()):
        _say(line)
    _print_spikes(rows, folder)
    _print_settings(config, folder, trained=bool(rows))
    _print_time(config, folder)
    if validations:
        without_bits = any(row.get("val_bits_per_byte") is None for row in validations)
        text_bytes = 0.0
        if without_bits and tokenizer is not None:
            text_bytes = _text_bytes_per_target(config, folder, tokenizer)
        _print_validations(config, validations, text_bytes)
    _print_sources(rows)
    if samples := samples_of(folder):
        _say(f"last sample: step {samples[-1].step}, {beginning_of(samples[-1].prompt + samples[-1].text)}")
    _print_checkpoints(folder, {row["step"]: row["val_loss"] for row in validations})


def _result(config: Config, rows: Sequence[Row], reached: LastStep | None) -> str:
    """Return the last metrics of a run and its last validation as one line.

    reached: the last step with a log entry or a checkpoint.
    """
    updates = [row for row in rows if "val_loss" not in row]
    if not updates and (reached is None or reached.step == 0):
        return f"not trained yet, of {config.train.steps:,} steps"
    last = updates[-1] if updates else {"step": 0}
    if reached is not None and reached.step > last["step"]:  # a stopped run, saved between two log entries
        last = {**last, "step": reached.step, "loss": reached.loss}
    loss, rate = shown_number(last, "loss", ".4f"), shown_number(last, "tokens_per_second", ",.0f")
    fraction, seconds = shown_number(last, "peak_share", ".0%"), _duration_of(last)
    text = f"step {last['step']} of {config.train.steps}, loss {loss}"
    if validation := next((row for row in reversed(rows) if "val_loss" in row), None):
        text += (
            f", validation loss {shown_number(validation, 'val_loss', '.4f')} at step {validation['step']}"
        )
    return (
        f"{text}, {rate} tokens/s, {fraction} of peak, {seconds}"
        if updates
        else f"{text}, no update is logged"
    )


def _print_time(config: Config, folder: RunFolder) -> None:
    """Print the phases that take most of the time, and what limits the speed; nothing for an older run."""
    use = time_use(folder)
    parts = sorted(use.phases, key=use.fraction, reverse=True)
    shown = [f"{phase} {use.fraction(phase):.1%}" for phase in parts if use.fraction(phase) >= _SHOWN_TIME]
    if shown:
        _say(f"\ntime: {', '.join(shown)}")
    if found := limit(use, config):
        _say(f"limit: {found}")


def _print_spikes(rows: Sequence[Row], folder: RunFolder) -> None:
    """Print one line if the run has loss spikes."""
    if found := spikes_in(rows):
        command = shlex.join([*typed_program(), "report", str(folder), "--spikes"])
        _say(f"\n{spikes_line(found)}; {command} shows its sequences")


def _print_settings(config: Config, folder: RunFolder, *, trained: bool) -> None:
    """Print the fields that differ from the defaults of the family, the hash of the config, and its bits.

    trained: the log has entries; imported weights have no bits of training.
    """
    family = config.model.family
    changed = differences(Config(model=type(config.model)()), config)
    if changed:
        _say(f"\nfields that differ from the defaults of {family} ({folder.config_file} has all):")
        rows = [["field", "value", "default"]]
        rows += [[one.path, _shown(one.asked), _shown(one.saved)] for one in changed]
        for line in text_table(rows, left=(0, 1, 2)):
            _say(f"  {line}")
    else:
        _say(f"\nall fields have the defaults of {family}")
    _say(f"config {config_hash(config)[:16]}")
    if trained and (facts := facts_of(folder)):
        _say(bits_text(facts))


def _shown(value: bool | int | float | str | None) -> str:
    return "-" if value is None else shown(value)


def _print_checkpoints(folder: RunFolder, losses: Mapping[int, float | None]) -> None:
    """Print the saved steps, and mark the best one. losses: the validation losses, by step."""
    best, vocabulary = best_step(folder), vocabulary_in_use(facts_of(folder))
    loss = None if best is None else losses.get(best)
    worse = loss is not None and loss > guessing_loss(vocabulary)
    mark = "" if worse else " (best validation)"
    steps = [f"{step}{mark * (step == best)}" if step else "step 0" for step in Checkpoints(folder).steps()]
    _say(f"checkpoints: {', '.join(steps) or 'none'}")
    if worse:
        _say(
            f"none is marked as best: the lowest validation loss of them, {loss:.4f}, is above "
            f"{guessing_text(vocabulary)}"
        )


def write_page(config: Config, folder: RunFolder, name: str) -> None:
    """Write the page of a run to the file of --html, by default in the run's folder, and print its path."""
    from mudd_core.run.report.page.run_page import FILE
    from mudd_core.run.report.page.run_page import write_page as write

    file = local(name, "[arguments] --html") if name else folder.path / FILE
    with contextlib.suppress(UserError):  # if the model cannot be read, the page lacks only its section
        run_copies(folder, needs=MODEL)
        config = dataclasses.replace(config, model=read_saved_config(folder).model)
    write(folder, config, file)
    _say(f"page  {file}")


def _print_validations(config: Config, rows: Sequence[Row], text_bytes: float) -> None:
    """Print the table of all validations. text_bytes: bytes of held-out text per target; 0 if unknown."""
    # Sequences of split documents, and of a reader (whose code does not run here), may be text.
    unknown = "no text" if spec_of(config.data.pipeline).ids_alone else "unknown"
    _say("\n   step    val loss   bits/byte")
    for row in rows:
        loss = shown_number(row, "val_loss", ".4f")
        bits = shown_number(row, "val_bits_per_byte", ".4f")
        if row.get("val_bits_per_byte") is None and loss != NOT_FINITE:
            bits = format(row["val_loss"] / math.log(2) / text_bytes, ".4f") if text_bytes else unknown
        _say(f"{row['step']:>7}  {loss:>10}  {bits:>10}")


def _print_sources(rows: Sequence[Row]) -> None:
    """Print the last metrics of each source of a mixture; nothing for other runs."""
    if found := source_table(latest(rows)):
        _say("\nsources of data.mix, at their last log entries:")
        for line in text_table(found):
            _say(f"  {line}")


def _text_bytes_per_target(config: Config, folder: RunFolder, name: str) -> float:
    """Return the bytes of held-out text per target, if this tokenizer decodes the ids of the run."""
    from mudd_core.data.pipelines.text import TextData
    from mudd_core.run.build.rows import validation_batches
    from mudd_core.run.build.run_tokenizer import asked_tokenizer, text_bytes_per_target
    from mudd_core.run.build.saved_model import load_run

    text, model, _ = load_run(config, folder)
    if isinstance(text, TextData):  # the run's own tokenizer is lossy, so decoding does not restore all bytes
        return 0.0
    tokenizer = asked_tokenizer(name, config, model.config.vocab_size)
    return text_bytes_per_target(tokenizer, validation_batches(config, text))


def _duration_of(row: Row) -> str:
    seconds = row.get("seconds")
    return duration(seconds) if isinstance(seconds, int | float) else "?"


def _say(text: str, end: str = "\n") -> None:
    """Print text of a run, escaped, because its values are untrusted."""
    print(visible(text), end=end)
