"""What the libraries of the Hugging Face hub leave below HF_HOME, made without a network."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import datasets


def put_dataset(home: Path, name: str, variant: str, splits: Mapping[str, Sequence[str]], made: Path) -> Path:
    """The folder of a data set of these texts, as load_dataset leaves it. made: a folder for what lies between."""
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
    """A tokenizer.json of this name, as huggingface_hub keeps it."""
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    (folder / "snapshots" / "1").mkdir(parents=True)
    (folder / "snapshots" / "1" / "tokenizer.json").write_bytes(data)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("1")
