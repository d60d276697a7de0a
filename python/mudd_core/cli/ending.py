"""The output at the end of training: a sample, the result, and commands that read the run."""

from __future__ import annotations

import contextlib
import shlex
import sys
from typing import TYPE_CHECKING, Any

from mudd_core.base.show.printable import printable
from mudd_core.base.surroundings import typed_program
from mudd_core.base.units import duration
from mudd_core.cli.request import Request
from mudd_core.config import Config
from mudd_core.run.records.events import Summary
from mudd_core.run.store.own_code import TRUST
from mudd_core.run.store.run_folder import RunFolder

if TYPE_CHECKING:
    from mudd_core.run.loop.trainer import Trainer


def show_sample(trainer: Any, config: Config, *, shown: bool = True) -> None:
    """Print a sample. Its errors do not fail a run that is already saved. shown: False on ranks that only compute."""
    from mudd_core.run.report.sample import write_text

    if trainer.tokenizer is None:  # the data are ids without text
        return
    trainer.engine.executor.release()  # frees gradients, so that packed weights of decoding reuse their memory
    say = write_now if shown else silent
    say("\na sample of what it learned:\n" + "-" * 72 + "\n")
    try:
        say(config.sample.prompt)
        write_text(trainer.model, trainer.tokenizer, config.sample.prompt, config.sample, say)
    except BrokenPipeError:
        raise
    except Exception as error:
        say(f"\nwarning: no sample: {error}")
    say("\n" + "-" * 72 + "\n")


def silent(text: str) -> None:
    """Write nothing. Used on ranks that only compute."""


_PROMPT_IDS = 48  # ids of a held-out sequence from which a prompt is taken


def write_now(text: str) -> None:
    """Write text to standard output at once."""
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def prompt_of(trainer: Trainer) -> str | None:
    """Return the start of a held-out document; empty if there is none, None for data without text."""
    tokenizer = trainer.tokenizer
    if tokenizer is None:
        return None
    with contextlib.suppress(StopIteration, ValueError, OSError):
        ids = next(iter(trainer.validation_batches()))["inputs"][0][:_PROMPT_IDS]
        document = [int(i) for i in ids if i != tokenizer.eos_id and i != tokenizer.bos_id]
        words = tokenizer.decode(document).replace("\ufffd", " ").split()
        prompt = " ".join(words[1:4] if len(words) > 4 else words[:3])  # the first word may be truncated
        return prompt if len(tokenizer.encode(prompt)) < trainer.model.config.max_seq_len else ""
    return ""


def ending(
    summary: Summary,
    folder: RunFolder,
    request: Request,
    prompt: str | None = "",
    limit: str = "",
    *,
    chats: bool = False,
) -> str:
    """Return the lines printed at the end of a run: the result, its warnings, and two commands that read the run.

    prompt: for the sample command; None if the run cannot sample. limit: what limits its speed, or empty. chats: True
    for a run on conversations.
    """
    from mudd_core.run.store.checkpoints import Checkpoints

    named = [*run_argument(folder), *([TRUST] if TRUST in request.options else [])]
    if request.source is not None and request.source.registers:  # a reader or a scheme of the config file
        named.append(f"--config={request.options['--config']}")
    prompted = ["--prompt", prompt] if prompt else []
    commands: list[list[str]] = []
    if Checkpoints(folder).steps():
        if chats:
            commands.append(["chat", *named])
        elif prompt is not None:
            commands.append(["sample", *named, *prompted])
    commands.append(["report", *named, "--html"])
    return "\n".join(
        [
            _result(summary),
            *(f"  warning  {text}" for text in summary.warnings),
            *([f"  limit    {limit}"] if limit else []),
            *(f"  {shlex.join([*typed_program(), *command])}" for command in commands),
        ]
    )


def run_argument(folder: RunFolder) -> list[str]:
    """Return the argument that names a run for a command that reads it."""
    path = folder.typed or str(folder)
    return [f"--workdir={path}" if path.startswith("-") or "=" in path else path]


def ending_details(summary: Summary, folder: RunFolder) -> str:
    """Return the lines at the end of a run for its log: the places of its files and the hash of its weights."""
    from mudd_core.run.store.checkpoints import Checkpoints

    steps = Checkpoints(folder).steps()
    saved = [f"checkpoint  {folder.step_folder(steps[-1])}"] if steps else []
    return "\n".join(
        [
            *saved,
            f"metrics     {folder.metrics_file}",
            f"summary     {folder.summary_file}",
            f"final hash  {summary.final_hash}",
        ]
    )


def _result(summary: Summary) -> str:
    """Return the result of a run and the reason for an early end as one line."""
    text = f"done: {summary.step} steps, {summary.tokens:,} tokens in {duration(summary.seconds)}"
    text += "" if summary.val_loss is None else f"; validation loss {summary.val_loss:.4f}"
    text += "" if summary.val_bits_per_byte is None else f", {summary.val_bits_per_byte:.4f} bits per byte"
    text += f", {summary.skipped_steps} updates skipped" if summary.skipped_steps else ""
    text += f", {summary.rewinds} rewinds" if summary.rewinds else ""
    text += "; the target loss is reached" if summary.reached else ""
    if summary.out_of_patience:
        text += (
            f"; {summary.since_best} validations in a row were not better (train.patience) than "
            f"{summary.best_val_loss:.4f} at step {summary.best_step}"
            if summary.best_val_loss is not None
            else "; no validation loss was finite (train.patience)"
        )
    end = "data.epochs" if summary.data_epochs else "data.mix_until"
    return text + (f"; the data end here ({end})" if summary.data_end else "")
