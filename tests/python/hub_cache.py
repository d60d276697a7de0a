"""Caches of the Hugging Face hub's libraries below HF_HOME, written without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets


def put_dataset(home: Path, name: str, variant: str, splits: Mapping[str, Sequence[str]], made: Path) -> Path:
    """Write the cache of a data set of these documents, as load_dataset does. made: folder for intermediate files."""
    for split, texts in splits.items():
        (made / "made" / split).mkdir(parents=True)
        datasets.Dataset.from_dict({"text": list(texts)}).to_parquet(str(made / "made" / split / "0.parquet"))
    datasets.load_dataset(str(made / "made"), cache_dir=str(made / "first"))
    (built,) = (made / "first").glob("made/default/*/*/dataset_info.json")
    target = home / "datasets" / name / variant / built.parent.parent.name / built.parent.name
    shutil.copytree(built.parent, target)
    for file in target.glob("made-*.arrow"):
        file.rename(file.with_name(file.name.replace("made-", f"{name}-")))
    about = json.loads((target / "dataset_info.json").read_text())
    about |= {"builder_name": name, "dataset_name": name, "config_name": variant}
    (target / "dataset_info.json").write_text(json.dumps(about))
    return target


def put_tokenizer(home: Path, name: str, data: bytes) -> None:
    """Write the tokenizer.json of this name where huggingface_hub caches it."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "snapshots" / "1").mkdir(parents=True)
    (folder / "snapshots" / "1" / "tokenizer.json").write_bytes(data)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("1")
