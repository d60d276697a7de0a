"""Mu-Transformer's program: files that return a config_dict, with flags and assignments, and its mode sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.config import Config, SampleConfig, find_config, read_config
from mudd_core.programs.program import CommandLine, Program, assigned_names, flag_names, is_yml

if TYPE_CHECKING:
    from mudd_core.data.rows import Prepared
    from mudd_core.data.tokenizers.tokenizer import Tokenizer
    from mudd_core.engine.model import Model
    from mudd_core.programs.resolved import Resolved
    from mudd_core.programs.row import Row
    from mudd_core.run.records.events import Validation
    from mudd_core.run.report.style import Style


def continue_validation_rows(
    config: Config, text: Prepared, model: Model, tokenizer: Tokenizer, write: Callable[[str], None]
) -> None:
    """Write continuations of the first validation batch, with the start of each sequence as the prompt."""
    from mudd_core.run.build.rows import validation_batches

    batch = next(iter(validation_batches(config, text)))
    length = min(config.sample.prompt_tokens, max(1, config.train.seq_len - 1))
    write_continuations(model, tokenizer, prompts_of(batch, length), config.sample, write)


def prompts_of(batch: Mapping[str, Array], length: int) -> list[list[int]]:
    """Return the first tokens of each sequence, truncated at the end of its document; skip sequences of padding."""
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
    """Write each prompt and its continuation up to the end of the document. Each prompt has a separate seed."""
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


class MuTransformer(Program):
    """Mu-Transformer's program."""

    name = grammar = folder = "mu_transformer"
    continues_text = True
    config = "--config=mu_transformer/configs/FILE.py"
    systems: ClassVar[Mapping[str, str]] = {"mu_transformer": f"{__name__}.weights"}
    exports: ClassVar[Mapping[str, tuple[str, ...]]] = {"mup": ("mu_transformer",)}

    def rows(self) -> tuple[Row, ...]:
        """Return the keys of the program's config files and its flags."""
        from mudd_core.programs.mu_transformer.keys import ROWS

        return ROWS

    def claims(self, asked: CommandLine) -> bool:
        """Return whether the config is one of the program's files, or a muP config with names that mudd_core lacks."""
        from mudd_core.programs.detect import known_alone

        if not asked.config or is_yml(asked.config):
            return False
        if "mu_transformer/" in asked.config or _returns_config_dict(asked.config):
            return True
        names = [*flag_names(asked.words), *assigned_names(asked.words)]
        rows = {row.name: row for row in self.rows()}
        if not any(known_alone(rows, names)):
            return False
        try:
            return read_config(asked.config).model.family == "mup"
        except UserError:
            return False  # the next reader reports the error with more detail

    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary config; raise UserError that names a wrong key."""
        from mudd_core.programs.mu_transformer.grammar import resolve

        return resolve(asked)

    def style(self, config: Config) -> type[Style]:
        """Return the program's log lines."""
        from mudd_core.programs.mu_transformer.style import MuTransformerStyle

        return MuTransformerStyle

    def write_sample(
        self, config: Config, text: Prepared, model: Model, tokenizer: Tokenizer, write: Callable[[str], None]
    ) -> None:
        """Write continuations of the first validation batch."""
        continue_validation_rows(config, text, model, tokenizer, write)

    def validation_lines(self, result: Validation) -> list[str]:
        """Return the program's line about an evaluation."""
        return [f"Eval loss: {result.val_loss}"]


def _returns_config_dict(config: str) -> bool:
    """Return whether a config file builds an ml_collections config_dict."""
    try:
        file = find_config(config)
        return file.suffix == ".py" and "ml_collections" in Path(file).read_text(encoding="utf-8")
    except (UserError, OSError, ValueError):
        return False


PROGRAM = MuTransformer()
