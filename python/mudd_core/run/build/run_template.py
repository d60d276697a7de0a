"""The chat template that a run was trained with, and the token that ends a turn by it."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import Config
from mudd_core.config.pipelines import spec_of
from mudd_core.data.chat.templates import ChatTemplate, find_template
from mudd_core.data.chat.turn_end import TurnEnd, turn_end
from mudd_core.data.pipelines.chat import kept_template
from mudd_core.data.sources.access import cache_root
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.run.records.data_facts import data_fingerprint
from mudd_core.run.store.json_files import read_facts
from mudd_core.run.store.run_folder import RunFolder


def run_template(config: Config, run: RunFolder, tokenizer: Tokenizer) -> ChatTemplate | None:
    """Return the template that a chat run was trained with, from its cache if that is there; None if it is lost."""
    if not spec_of(config.data.pipeline).conversations:
        return None
    name = f"chat-{data_fingerprint(read_facts(run))}"
    for root in (cache_root(config), run.path.parent / "cache"):
        if (found := kept_template(Path(root) / name)) is not None:
            return found
    try:
        return find_template(config.data, tokenizer)
    except (UserError, FormatError):  # its file is gone
        return None


def run_turn_end(config: Config, run: RunFolder, tokenizer: Tokenizer) -> TurnEnd | None:
    """Return how the template of a chat run ends an answer; None for other runs, or if its template is lost."""
    template = run_template(config, run, tokenizer)
    return None if template is None else turn_end(template, tokenizer)
