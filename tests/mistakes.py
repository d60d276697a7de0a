"""The commonest mistakes of the API, each with its one-line answer: tests/data/api/mistakes.txt.

    python tests/mistakes.py            print the lines of that file with current answers
    python tests/mistakes.py --write    write them into the file

A new entry of the file is `>>> ` followed by a line of Python; its answer is written under it.
"""

from __future__ import annotations

from code import InteractiveInterpreter
from pathlib import Path

import numpy as np

import mudd_core as mc
from typed_commands import typed_in, write_or_print

FILE = Path(__file__).resolve().parent / "data" / "api" / "mistakes.txt"
_PROMPT = ">>> "


def names() -> dict[str, object]:
    """Return the names that the lines may use."""
    model = {"vocab_size": 50, "max_seq_len": 8, "n_layer": 1, "d_model": 16, "d_ff": 32}
    config = mc.load_config("tiny.py", {"model": model, "train": {"batch_size": 2, "seq_len": 8}})
    small = mc.Model(config.model)
    return {
        "mc": mc,
        "np": np,
        "config": config,
        "model": small,
        "trainer": mc.Trainer(config, model=small),
        "t": mc.Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True),
        "x": np.ones((2, 3), np.float32),
        "w": np.ones((4, 5), np.float32),
    }


class Console(InteractiveInterpreter):
    """A Python console that stores its error output."""

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__(dict(known))
        self.said = ""

    def write(self, data: str) -> None:
        """Store a part of a traceback."""
        self.said += data


def answer(line: str, known: dict[str, object]) -> str:
    """Return the last line of the traceback, or "no error"."""
    console = Console(known)
    console.runsource(line)
    told = console.said.strip().splitlines() or ["no error"]
    return told[-1].removeprefix("mudd_core.base.errors.")


def text(typed: list[str]) -> str:
    """Return the text of the file with current answers."""
    known = names()
    return "\n".join(f"{_PROMPT}{line}\n{answer(line, known)}\n" for line in typed)


if __name__ == "__main__":
    write_or_print(FILE, text(typed_in(FILE, _PROMPT)))
