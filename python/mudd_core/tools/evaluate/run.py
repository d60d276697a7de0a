"""Evaluate the model that the command names, print the results, and write them to a file."""

from __future__ import annotations

import argparse
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.show.tables import text_table
from mudd_core.lm_eval.model import Model
from mudd_core.run.store.json_files import write_json
from mudd_core.tools.evaluate.results import as_json, evaluated, table_of
from mudd_core.tools.evaluate.tasks import Tasks


def listed(include: Path | None) -> int:
    """Print the names of all tasks; return the exit code. include: a folder with further tasks."""
    print("\n".join(Tasks(["list"], include).names()))
    return 0


def run(asked: argparse.Namespace, names: Sequence[str], include: Path | None) -> int:
    """Evaluate on the tasks; return the exit code. include: a folder with further tasks."""
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    tasks, to = Tasks(names, include), _new_file(asked.to)
    tasks.require_known(names)
    model = Model(
        asked.source,
        tokenizer=asked.tokenizer,
        step=int(asked.step) if asked.step and asked.step.isdecimal() else asked.step,
        batch_size=asked.batch,
        template=asked.template or "",
        enable_thinking=False if asked.no_think else None,
        trust_code=asked.trust_code,
    )
    print(f"{asked.source}: {model.about}", flush=True)
    chat = asked.chat or bool(asked.template) or asked.no_think or asked.system is not None
    if chat:
        model.chat_template(True)  # raises UserError if there is none, before the data are read
    result = evaluated(
        model,
        tasks.loaded(names),
        limit=asked.limit,
        few_shot=asked.few_shot,
        chat=chat,
        system=asked.system,
    )
    print("\n".join(text_table(table_of(result), left=(0, 1))))
    if model.truncated:
        print(f"{model.truncated:,} contexts were longer than the model's {model.max_length} tokens")
    if to is not None:
        write_json(to, as_json(result))
        print(to)
    return 0


def _new_file(text: str | None) -> Path | None:
    to = None if text is None else local(text, "[evaluate] --to")
    if to is not None and to.exists():
        raise UserError(
            f"[evaluate] --to: expected a new file, got {to}, which exists; delete it or name another"
        )
    if to is not None and not to.parent.is_dir():
        raise UserError(
            f"[evaluate] --to: expected a file in an existing folder, got {to}; "
            f"type: mkdir -p {shlex.quote(str(to.parent))}"
        )
    return to
