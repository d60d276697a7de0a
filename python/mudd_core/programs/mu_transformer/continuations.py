"""Text behind the beginnings of validation rows, as mu-Transformer's mode sample writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mudd_core.base.types import Array
from mudd_core.config import Config, SampleConfig

if TYPE_CHECKING:
    from mudd_core.data.rows import Prepared
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model


def continue_validation_rows(
    config: Config, text: Prepared, model: Model, tokenizer: Tokenizer, write: Callable[[str], None]
) -> None:
    """Write the texts that follow the beginnings of the rows of the first validation batch."""
    from mudd_core.run.build.rows import validation_batches

    batch = next(iter(validation_batches(config, text)))
    length = min(config.sample.prompt_tokens, max(1, config.train.seq_len - 1))
    write_continuations(model, tokenizer, prompts_of(batch, length), config.sample, write)


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
