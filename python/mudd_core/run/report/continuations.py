"""Text behind the beginnings of validation rows, as mu-Transformer's mode sample writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mudd_core.base.types import Array
from mudd_core.config import SampleConfig

if TYPE_CHECKING:
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


def prompts_of(batch: Mapping[str, Array], length: int) -> list[list[int]]:
    """The first tokens of each row of a batch, cut where its document ends; rows of padding are left out."""
    found = []
    for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
        counted = int((targets >= 0).cumprod().sum())
        if counted:
            found.append([int(token) for token in inputs[: min(length, counted)]])
    return found


def write_continuations(
    model: Model,
    tokenizer: Tokenizer,
    prompts: Sequence[Sequence[int]],
    settings: SampleConfig,
    write: Callable[[str], None],
) -> None:
    """Print each prompt and what the model writes behind it, up to the end of the document. Rows have own draws."""
    for row, prompt in enumerate(prompts):
        room = model.config.max_seq_len - len(prompt)
        tokens = []
        for token in model.generate(
            list(prompt),
            max_tokens=settings.max_tokens if settings.window == "ring" else min(settings.max_tokens, room),
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            seed=settings.seed + row,
            ids_below=tokenizer.vocab_size,
            window=settings.window,
        ):
            if token == tokenizer.eos_id:
                break
            tokens.append(int(token))
        write(f"PROMPT:\n{tokenizer.decode(prompt)}\nCONTINUATION:\n{tokenizer.decode(tokens)}\n\n")
