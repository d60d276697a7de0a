"""The files that a run reads: listing, patterns, files for validation."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mudd_core.base.errors import UserError
from mudd_core.config.data import DataConfig
from mudd_core.data.sources.listing import data_files
from mudd_core.data.sources.splits import sources_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.jsonl", "a.jsonl", "deep/er/c.jsonl", "deep/.hidden", "dataset_info.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}\n')
    return tmp_path


def names(path: str, folder: Path) -> list[str]:
    return [os.path.relpath(file, folder) for file in data_files(path)]


def test_a_file_a_folder_a_pattern_and_several(folder: Path) -> None:
    assert names(str(folder), folder) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert names(f"{folder}/*.jsonl", folder) == ["a.jsonl", "b.jsonl"]
    assert names(f"{folder}/**/*.jsonl", folder) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert names(f"{folder}/b.jsonl, {folder}/a.jsonl", folder) == ["a.jsonl", "b.jsonl"]
    (folder / "with,comma.jsonl").write_text("{}")
    assert names(f"{folder}/with,comma.jsonl", folder) == ["with,comma.jsonl"]


@pytest.mark.parametrize("path", ["nothing*.jsonl", "gone.jsonl", "a\0b"])
def test_what_is_not_there_is_refused(path: str, folder: Path) -> None:
    with pytest.raises(UserError, match=r"\[data\.path\]"):
        data_files(f"{folder}/{path}")


def test_an_indexed_data_set_is_its_bin(folder: Path) -> None:
    for name in ("p.idx", "p.bin", "p_indexmap_9ns_8sl_1s_doc_idx.npy"):
        (folder / "deep" / "er" / name).write_bytes(b"")
    assert names(f"{folder}/deep/er/p*", folder) == ["deep/er/p.bin"]
    assert names(f"{folder}/deep/er/p", folder) == ["deep/er/p.bin"]


def test_files_for_validation_are_no_files_for_training(folder: Path) -> None:
    settings = DataConfig(path=str(folder), eval_match="er/c")
    found = sources_of(settings)
    assert [path.name for path in found.train] == ["a.jsonl", "b.jsonl"]
    assert [path.name for path in found.valid] == ["c.jsonl"]
    assert found.format.name == "jsonl"
    with pytest.raises(UserError, match="leaves no files for validation"):
        sources_of(replace(settings, eval_match="nowhere"))
    with pytest.raises(UserError, match="leaves no files for training"):
        sources_of(replace(settings, eval_match="jsonl"))


def test_validation_files_that_train_too_are_a_warning(folder: Path) -> None:
    found = sources_of(DataConfig(path=str(folder), eval_path=f"{folder}/a.jsonl"))
    assert found.warnings == (
        f"1 of the validation files are also used for training, {folder}/a.jsonl first; set "
        "data.eval_match=STRING to exclude files from the training",
    )


def test_files_of_several_formats_are_refused(folder: Path) -> None:
    (folder / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"files of one format, got jsonl \(a.jsonl\), parquet \(x.parquet\)"):
        sources_of(DataConfig(path=str(folder)))
