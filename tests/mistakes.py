"""The commonest mistakes of the API, each with the one line that it is answered with: tests/data/api/mistakes.txt.

    python tests/mistakes.py            print the lines of that file with the answers of now
    python tests/mistakes.py --write    write them into the file

A new line of the file is `>>> ` and what the user types; its answer is written under it.
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
    """What the lines may use."""
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
    """A Python console that keeps what it says of errors."""

    def __init__(self, known: dict[str, object]) -> None:
        super().__init__(dict(known))
        self.said = ""

    def write(self, data: str) -> None:
        """Keep a part of a traceback."""
        self.said += data


def answer(line: str, known: dict[str, object]) -> str:
    """The last line of the traceback, or "no error"."""
    console = Console(known)
    console.runsource(line)
    told = console.said.strip().splitlines() or ["no error"]
    return told[-1].removeprefix("mudd_core.base.errors.")


def text(typed: list[str]) -> str:
    """The file with the answers of now."""
    known = names()
    return "\n".join(f"{_PROMPT}{line}\n{answer(line, known)}\n" for line in typed)


if __name__ == "__main__":
    write_or_print(FILE, text(typed_in(FILE, _PROMPT)))
