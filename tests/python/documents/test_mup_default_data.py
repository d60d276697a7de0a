"""The data set and the tokenizer that mu-Transformer's configs name: used if this machine has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from document_sizes import OF_MU_TRANSFORMER
from hub_cache import put_dataset, put_tokenizer
from mu_commands import resolved
from mudd_core.data.tokenizers.bpe_training import train_bpe
from places import ROOT

FIRST = ("--config=mu_transformer/configs/small.py", "--mode=train")
TEXTS = [f"document {i} says that {i} and {i * i} are numbers" for i in range(2000)]
DICT = """
from ml_collections import config_dict

def get_config():
    config = config_dict.ConfigDict()
    config.hfds_identifier = "{name}"
    config.hfds_config = "en"
    config.hftr_tokenizer_name = "T5TokenizerFast"
    config.hftr_tokenizer_instance = "t5-base"
    return config
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty HF_HOME, and enter a folder without c4 and t5-base."""
    for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def fill(home: Path) -> None:
    splits = {"train": TEXTS[:1900], "validation": TEXTS[1900:]}
    put_dataset(home, "c4", "en", splits, home.parent)
    put_tokenizer(home, "google-t5/t5-base", train_bpe(["\n".join(TEXTS).encode()], 1, 300))


def launched(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *FIRST, *words],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_first_command_says_what_it_takes_in_their_place(home: Path, tmp_path: Path) -> None:
    done = launched(tmp_path, f"--workdir={tmp_path / 'w'}", "--plan")
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    for name in ("data set c4 (en)", "tokenizer t5-base"):
        folder = name.split()[1] if name.startswith("tokenizer") else "c4"
        absent = (
            f"the config's {name} is not on this machine and is not used: neither the folder {folder} "
            "nor HF_HOME has it"
        )
        assert absent in told
    assert "this run uses the sources of Python's standard library and a BPE vocabulary of 32,100" in told


def test_the_first_command_trains_on_c4_with_t5_base_where_they_are_here(home: Path, tmp_path: Path) -> None:
    fill(home)
    sizes = [f"--config.{word}" for word in OF_MU_TRANSFORMER.split()]
    words = [f"--workdir={tmp_path / 'w'}", *sizes, f"data.cache_dir={tmp_path / 'cache'}", "train.threads=1"]
    done = launched(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    told = done.stdout + done.stderr
    assert "the config's data set c4 (en) is on this machine and is used" in told
    assert "the config's tokenizer t5-base is on this machine and is used" in told
    assert "the recipe names" not in told
    (run,) = (tmp_path / "w").iterdir()
    assert run.name.startswith("mutransformer_c4_")
    saved = json.loads((run / "config.json").read_text())
    data = saved["data"]
    assert (data["dataset"], data["dataset_config"], data["pipeline"]) == ("c4", "en", "rows")
    assert data["tokenizer"] == "t5-base"
    typed = (
        "--config.hfds_identifier=c4",
        "--config.hfds_config=en",
        "--config.hftr_tokenizer_instance=t5-base",
    )
    again = launched(tmp_path, *words, *typed)  # finds the same run
    assert again.returncode == 0 and "is finished." in again.stdout + again.stderr


def test_a_run_that_has_begun_keeps_its_data(home: Path, tmp_path: Path, tiny_text: Path) -> None:
    sizes = [f"--config.{word}" for word in OF_MU_TRANSFORMER.split()]
    words = [
        f"--workdir={tmp_path / 'w'}",
        *sizes,
        f"data.path={tiny_text}",
        "train.threads=1",
        "data.tokenizer=bytes",
        f"data.cache_dir={tiny_text.parent / 'cache'}",
    ]
    assert launched(tmp_path, *words, "train.stop_at=2").returncode == 75
    (run,) = (tmp_path / "w").iterdir()
    saved = json.loads((run / "config.json").read_text())
    saved["data"] |= {"path": "", "tokenizer": "bpe"}  # as on a machine without c4 and t5-base
    (run / "config.json").write_text(json.dumps(saved))
    fill(home)
    found = resolved(*sizes, workdir=str(tmp_path / "w"))
    assert (found.config.data.dataset, found.config.data.tokenizer) == ("", "bpe")
    assert [note for note in found.notes if note.endswith("as it started")] == [
        "the run continues without the config's data set c4 (en), as it started",
        "the run continues without the config's tokenizer t5-base, as it started",
    ]


def test_names_of_ones_own_are_not_replaced(home: Path, tmp_path: Path) -> None:
    for name, dataset in (("c4", ""), ("mine", "mine")):
        (tmp_path / f"{name}.py").write_text(DICT.format(name=name))
        config = resolved(config=str(tmp_path / f"{name}.py")).config
        assert (config.data.dataset, config.data.tokenizer) == (dataset, "bpe")
    fill(home)
    config = resolved(config=str(tmp_path / "c4.py")).config
    assert (config.data.dataset, config.data.tokenizer) == ("c4", "t5-base")
    config = resolved("data.path=text").config
    assert (config.data.dataset, config.data.path, config.data.tokenizer) == ("", "text", "t5-base")
    config = resolved("data.tokenizer=bytes", "data.path=text").config
    assert (config.data.dataset, config.data.tokenizer) == ("", "bytes")
    assert resolved("hfds_identifier=c4").config.data.dataset_config == "en"  # the program's default
    assert resolved("lr_base=1.0", config="mup/tiny.py", mode="train").config.data.dataset == ""
