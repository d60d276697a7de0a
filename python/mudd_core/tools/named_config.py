"""The config of a tool: the file of --config, or the saved config of a run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.config import Config, load_config
from mudd_core.config.tool_arguments import ToolArguments


def add_config_or_run(parser: ToolArguments) -> None:
    """Add --config and --workdir; a user passes one of them."""
    parser.add_argument("--config", metavar="FILE", help="config file, as for training")
    parser.add_argument(
        "--workdir", metavar="DIR", help="instead of --config: a run, whose saved config is used"
    )


def named_config(
    parser: ToolArguments, asked: argparse.Namespace, words: Sequence[str], *, needs_model: bool = True
) -> Config:
    """Return the checked config that the options name, with overrides; raise UserError unless one option is set.

    needs_model: also run the code of the user's model or optimizer, if the run has a copy.
    """
    if asked.config and asked.workdir:
        raise UserError(
            f"{parser.place} --workdir: expected it without --config, got both; leave one of them out"
        )
    if asked.workdir:
        from mudd_core.run.store.own_code import ALL
        from mudd_core.run.store.saved_run import config_of_run

        return config_of_run(asked.workdir, words, ALL if needs_model else (), trusted=asked.trust_code)
    if not asked.config:
        parser.require("--config")
    return load_config(asked.config, words)


def fingerprint_of_run(workdir: str | None) -> str | None:
    """Return the fingerprint of a run's data; None without a run, or if the run has none yet."""
    if not workdir:
        return None
    from mudd_core.run.records.facts import data_fingerprint
    from mudd_core.run.store.json_files import facts_of
    from mudd_core.run.store.run_folder import RunFolder
    from mudd_core.run.store.saved_run import run_and_step

    return data_fingerprint(facts_of(RunFolder.named(run_and_step(workdir)[0]))) or None
