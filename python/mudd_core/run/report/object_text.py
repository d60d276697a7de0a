"""The repr of a Trainer, a Summary and a Run at a prompt and in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mudd_core.config import Config

Facts = Mapping[str, str]


def run_facts(
    config: Config, step: int | None, loss: float | None, parameters: int | None, folder: Path | None
) -> Facts:
    """Return label to text, for one line or a table. An argument that is None is left out."""
    given = {
        "model": config.model.family + ("" if parameters is None else f", {parameters:,} parameters"),
        "step": None if step is None else f"{step:,} of {config.train.steps:,}",
        "loss": None if loss is None else f"{loss:.4f} nats",
        "folder": None if folder is None else str(folder),
    }
    return {label: text for label, text in given.items() if text is not None}


def one_line(kind: str, name: str, facts: Facts) -> str:
    """Return a repr like `Trainer('tiny': model transformer_pp, 1,328,256 parameters; step 3 of 100)`."""
    return f"{kind}('{name}': {'; '.join(f'{label} {text}' for label, text in facts.items())})"
