"""The ids of a race for programs that do not read token caches: train.bin and val.bin as in nanoGPT, and data.json."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.paths import output_folder
from mudd_core.base.regular_files import write_file
from mudd_core.config import Config
from mudd_core.data.pipelines import prepare
from mudd_core.data.pipelines.text import TextData
from mudd_core.run.store.json_files import write_json

NAMES = {"train": "train.bin", "valid": "val.bin"}
_MEMBERS = "data.json"


def write_data(config: Config, folder: Path) -> None:
    """Write the ids of the config's data as uint16, or uint32 for a large vocabulary, unless the folder has them.

    data.json has the vocabulary, sequence length and batch size of the config. It also has the number of targets in
    the whole sequences of val.bin, and the bytes of their text. Raise UserError for data that are not one text.
    """
    if (folder / _MEMBERS).exists():
        return
    data = prepare(config)
    if not isinstance(data, TextData):
        raise UserError(
            f"[race] --recipes: expected data.pipeline=text for a race with programs, got {config.data.pipeline}"
        )
    output_folder(folder, "[race] --out")
    width = np.uint16 if data.vocab_size <= 1 << 16 else np.uint32
    for split in ("train", "valid"):
        write_file(folder / NAMES[split], data.cache.tokens(split).astype(width).tobytes())
    seq_len = config.train.seq_len
    targets = (data.cache.n_valid_tokens - 1) // seq_len * seq_len
    write_json(
        folder / _MEMBERS,
        {
            "vocab_size": data.vocab_size,
            "seq_len": seq_len,
            "batch_size": config.train.batch_size,
            "val_targets": targets,
            "val_bytes": targets * data.valid_bytes_per_target,
        },
    )
