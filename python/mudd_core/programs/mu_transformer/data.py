"""The data set and the tokenizer that mu-Transformer's configs name (c4, t5-base), where no argument names them.

They are taken where they are on this machine; elsewhere the run has the text and the tokenizer of our own config, and
says so. A run that has begun keeps what it began with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.storage import readable
from mudd_core.config import Config
from mudd_core.programs.mu_transformer.keys_run import DATASET, TOKENIZER, VARIANT
from mudd_core.programs.mu_transformer.keys_values import text
from mudd_core.programs.row import Row
from mudd_core.programs.table import Setting
from mudd_core.run.store.run_folder import RunFolder

# Fields of ours that name other data, or another tokenizer.
_OWN_TEXT = {"data.path", "data.dataset", "data.pipeline", "data.format", "data.eval_path", "data.eval_match"}
_OWN_TOKENIZER = {"data.tokenizer", "data.vocab_size", "data.pipeline"}


@dataclass
class DefaultData:
    """Keys whose defaults decide fields, keys of a file that do not, and lines for the user."""

    taken: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def judge(self, here: bool, keys: set[str], found: str, absent: str) -> None:
        """Take the defaults of these keys or drop them, with the line for either case."""
        if here:
            self.taken |= keys
        else:
            self.dropped |= keys
        self.notes.append(found if here else absent)


def default_data(
    rows: Mapping[str, Row],
    settings: Mapping[str, Setting],
    typed: Collection[str],
    own: Collection[str],
    run: Config | None,
) -> DefaultData:
    """What becomes of the names of the configs. own: our fields that are typed. run: the config of one that has begun.

    Names other than the original's defaults are the user's, and so are typed ones.
    """
    data = DefaultData()
    values = {name: setting.value for name, setting in settings.items()}
    if VARIANT in typed and DATASET not in typed:
        data.taken |= {DATASET, VARIANT}
    elif _is_default(rows, values, (DATASET, VARIANT)) and not _OWN_TEXT & set(own):
        if DATASET in typed:
            data.taken |= {VARIANT} if run is None or run.data.dataset_config else set()
        else:
            _look_for_dataset(data, text(values, DATASET), text(values, VARIANT), run)
    if _is_default(rows, values, (TOKENIZER,)) and TOKENIZER not in typed and not _OWN_TOKENIZER & set(own):
        _look_for_tokenizer(data, text(values, TOKENIZER), run)
    return data


def _is_default(rows: Mapping[str, Row], values: Mapping[str, object], names: tuple[str, ...]) -> bool:
    return all(values[name] == rows[name].default for name in names)


def _look_for_dataset(data: DefaultData, name: str, variant: str, run: Config | None) -> None:
    from mudd_core.data.sources.hub_datasets import is_here

    here = is_here(name, variant) if run is None else run.data.dataset == name
    data.judge(
        here,
        {DATASET, VARIANT},
        f"the config's data set {name} ({variant}) is on this machine and is taken",
        f"the config's data set {name} ({variant}) is not on this machine: neither the folder {name} nor HF_HOME has it"
        if run is None
        else f"the run goes on without the config's data set {name} ({variant}), as it began",
    )


def _look_for_tokenizer(data: DefaultData, name: str, run: Config | None) -> None:
    from mudd_core.data.tokenizers.source import is_here

    here = is_here(name) if run is None else run.data.tokenizer == name
    data.judge(
        here,
        {TOKENIZER},
        f"the config's tokenizer {name} is on this machine and is taken",
        f"the config's tokenizer {name} is not on this machine: neither the folder {name} nor HF_HOME has it"
        if run is None
        else f"the run goes on without the config's tokenizer {name}, as it began",
    )


def begun(folder: str, mounts: str) -> Config | None:
    """The config of the run in a work directory; None where none has begun, or its files cannot be read."""
    from mudd_core.run.store.json_files import read_saved_config

    try:
        run = RunFolder(Path(readable(folder, mounts)))
        return read_saved_config(run) if folder and run.holds_run else None
    except (UserError, FormatError, OSError):
        return None
