"""The prompt of `sample`, and the texts that it writes behind it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import read_bytes
from mudd_core.cli.ending import write_now
from mudd_core.config import SampleConfig
from mudd_core.config.values import whole

if TYPE_CHECKING:
    from mudd_core.data.tokenize import Tokenizer
    from mudd_core.engine.model import Model

PROMPTS = ("--prompt", "--prompt-file")
_BETWEEN = "---\n"


def prompt_of(options: Mapping[str, str]) -> str:
    """The text of --prompt (`-`: of standard input) or of --prompt-file, less a line feed at the end of either input.

    UserError for both options, and for an input that is no UTF-8.
    """
    typed, file = (options.get(name) for name in PROMPTS)
    if typed is not None and file is not None:
        raise UserError("[arguments] --prompt-file: expected it without --prompt, got both; leave one out")
    if file is None and typed != "-":
        return typed or ""
    name = "standard input" if file is None else file
    try:
        data = sys.stdin.buffer.read() if file is None else read_bytes(Path(file))
        return data.decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"[arguments] the prompt in {name} cannot be read as UTF-8: {error}") from error


def sample_count(options: Mapping[str, str]) -> int:
    """The number of --num-samples; 1 without it."""
    return whole("[arguments] --num-samples", options.get("--num-samples", "1"), 1)


def write_samples(
    model: Model, tokenizer: Tokenizer, prompt: str, settings: SampleConfig, count: int
) -> None:
    """Write `count` texts behind the prompt, the seed of each one higher; notes go to standard error."""
    from mudd_core.run.report.sample import write_text

    notes: dict[str, None] = {}
    for number in range(count):
        write_now(_BETWEEN + prompt if number else prompt)
        own = replace(settings, seed=settings.seed + number)
        write_text(model, tokenizer, prompt, own, write_now, notes.setdefault)
        write_now("\n")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
