"""The dataset and the tokenizer that mu-Transformer's configs name (c4, t5-base), if no argument names others.

They are used if they are on this machine. Otherwise the run uses the dataset and the tokenizer of mudd_core's config,
and prints a note. A resumed run keeps its dataset and tokenizer.
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

# Config fields that select other data or another tokenizer.
_OWN_TEXT = {"data.path", "data.dataset", "data.pipeline", "data.format", "data.eval_path", "data.eval_match"}
_OWN_TOKENIZER = {"data.tokenizer", "data.vocab_size", "data.pipeline"}


@dataclass
class DefaultData:
    """The decision about the defaults. taken: keys whose defaults set fields. dropped: keys of a file without effect.
    notes: lines for the user.
    """

    taken: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def judge(self, here: bool, keys: set[str], found: str, absent: str) -> None:
        """Use the defaults of these keys if `here`, else drop them; add the matching note."""
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
    """Decide whether the dataset and tokenizer names of the configs are used.

    own: config fields that the command sets. run: the config of a run to resume. Names in the command, and names other
    than the original's defaults, are the user's choice and always used.
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
        f"the config's data set {name} ({variant}) is on this machine and is used",
        f"the config's data set {name} ({variant}) is not on this machine and is not used: neither "
        f"the folder {name} nor HF_HOME has it"
        if run is None
        else f"the run continues without the config's data set {name} ({variant}), as it started",
    )


def _look_for_tokenizer(data: DefaultData, name: str, run: Config | None) -> None:
    from mudd_core.data.tokenizers.source import is_here

    here = is_here(name) if run is None else run.data.tokenizer == name
    data.judge(
        here,
        {TOKENIZER},
        f"the config's tokenizer {name} is on this machine and is used",
        f"the config's tokenizer {name} is not on this machine and is not used: neither the folder "
        f"{name} nor HF_HOME has it"
        if run is None
        else f"the run continues without the config's tokenizer {name}, as it started",
    )


def begun(folder: str, mounts: str) -> Config | None:
    """Return the config of the run in a work directory; None if there is no run or its files are unreadable."""
    from mudd_core.run.store.json_files import read_saved_config

    try:
        run = RunFolder(Path(readable(folder, mounts)))
        return read_saved_config(run) if folder and run.holds_run else None
    except (UserError, FormatError, OSError):
        return None
