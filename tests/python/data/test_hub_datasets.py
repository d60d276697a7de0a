"""data.dataset: folders, copies that `datasets` has on this machine, and the messages if there are none."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import datasets
import pytest

import mudd_core as mc
from hub_cache import put_dataset
from mudd_core.base.errors import UserError
from mudd_core.config.data import DataConfig
from mudd_core.data.sources.access import LOCAL, Access
from mudd_core.data.sources.hub_datasets import is_here, with_dataset
from mudd_core.data.sources.splits import sources_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an HF_HOME with a data set `wikitext` of three splits, as load_dataset leaves it."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("HF_DATASETS_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    splits = {split: [f"{split} {i}" for i in range(200)] for split in ("train", "validation", "test")}
    return put_dataset(tmp_path / "home", "wikitext", "wikitext-2-v1", splits, tmp_path)


def settings(name: str, **more: str) -> DataConfig:
    return DataConfig(dataset=name, **more)  # type: ignore[arg-type]


def test_a_data_set_of_the_hub_is_found_without_a_network(home: Path) -> None:
    found = with_dataset(settings("wikitext", dataset_config="wikitext-2-v1"), LOCAL)
    assert found.path == str(home / "wikitext-train.arrow")
    assert (found.eval_path, found.dataset) == ("", "")
    test = with_dataset(settings("wikitext", dataset_config="wikitext-2-v1", split="test"), LOCAL)
    assert test.path == str(home / "wikitext-test.arrow")


def test_three_splits_give_the_validation_of_pipelines_that_take_one(home: Path) -> None:
    found = with_dataset(settings("wikitext", dataset_config="wikitext-2-v1", pipeline="rows"), LOCAL)
    assert found.eval_path == str(home / "wikitext-validation.arrow")
    (home / "wikitext-test.arrow").unlink()
    named = settings("wikitext", dataset_config="wikitext-2-v1", pipeline="rows", eval_path="mine")
    shutil.copy(home / "wikitext-train.arrow", home / "wikitext-test.arrow")
    assert with_dataset(named, LOCAL).eval_path == "mine"


def test_a_name_that_the_hub_has_moved_is_found_below_its_owner(home: Path, tmp_path: Path) -> None:
    made = put_dataset(tmp_path / "home", "c4", "en", {"train": ["one", "two"]}, tmp_path / "more")
    (tmp_path / "home" / "datasets" / "c4").rename(tmp_path / "home" / "datasets" / "allenai___c4")
    found = with_dataset(settings("c4", dataset_config="en"), LOCAL)
    moved = str(made).replace("/datasets/c4/", "/datasets/allenai___c4/")
    assert found.path == f"{moved}/c4-train.arrow"


def test_a_folder_of_that_name_comes_first(home: Path, tmp_path: Path) -> None:
    (tmp_path / "wikitext" / "train").mkdir(parents=True)
    assert with_dataset(settings("wikitext"), LOCAL).path == str(Path("wikitext") / "train")
    (tmp_path / "plain").mkdir()
    assert with_dataset(settings("plain"), LOCAL).path == "plain"


def test_what_is_not_here_is_2_with_the_command_that_fetches_it(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        with_dataset(settings("c4", dataset_config="en"), LOCAL)
    text = str(error.value)
    assert str(tmp_path / "c4") in text and f"HF_HOME ({tmp_path / 'home'})" in text
    assert "datasets.load_dataset('c4', 'en')" in text and "hub.online=true" in text


def test_a_hub_that_does_not_answer_is_named_without_advice_that_was_followed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_dataset_builder(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach 'c4' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", load_dataset_builder)
    with pytest.raises(
        UserError, match=r"'c4 en' is not on this machine and cannot be fetched .*: Couldn't"
    ) as error:
        with_dataset(settings("c4", dataset_config="en"), Access(online=True))
    assert "hub.online" not in str(error.value)


def test_a_split_that_is_not_there_is_named(home: Path) -> None:
    with pytest.raises(UserError, match=r"\(test, train, validation\), got 'dev'"):
        with_dataset(settings("wikitext", dataset_config="wikitext-2-v1", split="dev"), LOCAL)


def test_a_path_beside_a_data_set_is_refused() -> None:
    with pytest.raises(UserError, match=r"expected data\.path or data\.dataset, got both"):
        with_dataset(settings("c4", path="text"), LOCAL)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"run setup hub"):
        with_dataset(settings("c4"), LOCAL)


@pytest.mark.parametrize("pipeline", ["text", "rows", "pack"])
def test_a_data_set_of_the_hub_trains_a_run(pipeline: str, home: Path, tmp_path: Path) -> None:
    words = [
        "data.dataset=wikitext",
        "data.dataset_config=wikitext-2-v1",
        "data.tokenizer=bytes",
        f"data.cache_dir={tmp_path / 'cache'}",
        f"data.pipeline={pipeline}",
        "train.seq_len=16",
        "train.batch_size=2",
        "train.steps=2",
        "eval.max_batches=1",
    ]
    config = mc.load_config("tiny.py", words)
    with mc.Trainer(config, tmp_path / "run") as trainer:
        final = trainer.fit().final_hash
    assert trainer.config.data.dataset == "wikitext"  # the name as the user typed it
    with mc.Trainer(config, tmp_path / "again") as trainer:
        assert trainer.fit().final_hash == final


def put_snapshot(home: Path, name: str, files: dict[str, list[str]]) -> Path:
    """Write the files of a data set as `hf download --repo-type dataset` does. Return their folder."""
    kept = home / "hub" / f"datasets--{name.replace('/', '--')}"
    folder = kept / "snapshots" / "abc"
    for at in ("blobs", "refs"):
        (kept / at).mkdir(parents=True)
    (kept / "refs" / "main").write_text("abc")
    for number, (file, texts) in enumerate({"README.md": ["a card"], **files}.items()):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (kept / "blobs" / str(number)).write_text("card" if file == "README.md" else lines)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).symlink_to(os.path.relpath(kept / "blobs" / str(number), (folder / file).parent))
    return folder


def test_a_downloaded_repository_trains_its_split(home: Path, tmp_path: Path) -> None:
    words = [f"{word} number {i}" for word in ("one", "two") for i in range(100)]
    files = {f"data/{split}-00000-of-00001.jsonl": words for split in ("train", "validation", "test")}
    folder = put_snapshot(tmp_path / "home", "me/texts", files)
    assert is_here("me/texts", "")
    found = with_dataset(settings("me/texts", pipeline="pack"), LOCAL)
    assert found.path == str(folder)
    sources = sources_of(found)
    assert [file.name for file in sources.train] == ["train-00000-of-00001.jsonl"]
    assert [file.name for file in sources.valid] == ["validation-00000-of-00001.jsonl"]
    (folder.parents[1] / "refs" / "main").unlink()
    assert with_dataset(settings("me/texts"), LOCAL).path == str(folder)


def test_a_downloaded_repository_of_several_data_sets_needs_a_choice(home: Path, tmp_path: Path) -> None:
    folder = put_snapshot(
        tmp_path / "home", "allenai/c4", {"en/c4-train.00000-of-01024.json": ["x"], "de/c4-train.json": ["y"]}
    )
    assert with_dataset(settings("c4", dataset_config="en"), LOCAL).path == str(folder / "en")
    with pytest.raises(UserError, match=r"\[data\.dataset_config\] expected a folder of c4 in .*, got 'fr'"):
        with_dataset(settings("c4", dataset_config="fr"), LOCAL)
    (folder / "README.md").unlink()
    (folder / "README.md").write_text("---\nconfigs:\n- config_name: en\n- config_name: de\n---\n")
    with pytest.raises(UserError, match=r"expected one of de, en, the data sets in c4, got none"):
        with_dataset(settings("c4"), LOCAL)


def test_a_repository_of_a_card_alone_is_not_here(home: Path, tmp_path: Path) -> None:
    put_snapshot(tmp_path / "home", "me/card", {})
    assert not is_here("me/card", "")


def test_a_folder_c4_is_taken_if_it_has_files_of_c4(home: Path, tmp_path: Path) -> None:
    (tmp_path / "c4" / "en").mkdir(parents=True)
    (tmp_path / "c4" / "en" / "notes.txt").write_text("not C4")
    assert not is_here("c4", "en")
    with pytest.raises(UserError, match=r"neither the folder .*c4 nor HF_HOME \(.*home\) has it"):
        with_dataset(settings("c4", dataset_config="en"), LOCAL)
    # a path that starts with ./ is a folder
    assert with_dataset(settings("./c4", dataset_config="en"), LOCAL).path == "c4/en"
    (tmp_path / "c4" / "en" / "c4-train.00000-of-01024.json.gz").write_bytes(b"")
    assert is_here("c4", "en")
    assert with_dataset(settings("c4", dataset_config="en"), LOCAL).path == "c4/en"
