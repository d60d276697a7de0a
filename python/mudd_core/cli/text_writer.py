"""Writes the texts of `sample` on standard output, and its notes on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mudd_core.cli.ending import silent, write_now
from mudd_core.config import SampleConfig

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model

_BETWEEN = "---\n"


@dataclass
class Writer:
    """Writes texts of a model, the seed of each one higher. note: gets a line for a text that is cut.

    stopped: whether a stop was asked for, which ends a text. shown: else a rank only takes part in the text.
    """

    model: Model
    tokenizer: Tokenizer
    settings: SampleConfig
    stops: Sequence[str]
    note: Callable[[str], None]
    stopped: Callable[[], bool] = lambda: False
    shown: bool = True
    between: str = _BETWEEN
    _written: int = 0

    def check(self, prompt: str) -> None:
        """UserError for a prompt that the model cannot continue with these settings."""
        from mudd_core.run.report.sample import prompt_ids

        prompt_ids(self.model, self.tokenizer, prompt, self.settings)

    def write(self, prompt: str, count: int, ended: Callable[[], bool] = lambda: False) -> None:
        """Write a prompt and what follows it, `count` times or until ended() is true."""
        from mudd_core.run.report.sample import write_text

        self.check(prompt)  # before anything is written
        out = write_now if self.shown else silent
        done = False

        def ends() -> bool:
            nonlocal done
            done = ended() or self.stopped()
            return done

        for _ in range(count):
            out((self.between if self._written else "") + prompt)
            own = replace(self.settings, seed=self.settings.seed + self._written)
            write_text(self.model, self.tokenizer, prompt, own, out, self.note, self.stops, ends)
            out("\n")
            self._written += 1
            if done:
                return


def say(notes: dict[str, None]) -> None:
    """Print the notes on standard error, and forget them."""
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    notes.clear()
