"""The first and the third command of mu-Transformer's document, exactly and each in a fresh process.

A test adds files: small config files in the document's folder, and c4 and t5-base in HF_HOME. A folder of the test
replaces the work directory /tmp/workdir. The second command sets its size; another test plans it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import document_commands
from document_sizes import OF_MU_TRANSFORMER
from hub_cache import put_dataset, put_tokenizer
from mudd_core.data.tokenizers.bpe_training import train_bpe
from tiny_run import ROOT

COMMANDS = document_commands.commands("mu_transformer")
TEXTS = [f"document {i} says that {i} and {i * i} are numbers" for i in range(2000)]
DICT = """
from ml_collections import config_dict

def get_config():
    return config_dict.ConfigDict({values!r})
"""


@pytest.mark.parametrize("number", [0, 2])
def test_a_command_trains_on_c4_with_t5_base(number: int, tmp_path: Path) -> None:
    """Train with its config file; the same command then finds the finished run."""
    pairs = (word.split("=") for word in OF_MU_TRANSFORMER.split())
    values = {name: json.loads(value) for name, value in pairs}
    (tmp_path / "mu_transformer/configs").mkdir(parents=True)
    for name in ("small", "tiny"):
        (tmp_path / f"mu_transformer/configs/{name}.py").write_text(DICT.format(values=values))
    put_dataset(tmp_path / "home", "c4", "en", {"train": TEXTS[:1900], "validation": TEXTS[1900:]}, tmp_path)
    put_tokenizer(tmp_path / "home", "google-t5/t5-base", train_bpe(["\n".join(TEXTS).encode()], 1, 300))
    hub = ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_HUB_OFFLINE")
    variables = {name: value for name, value in os.environ.items() if name not in hub}
    variables |= {"HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    words = [word.replace("/tmp/workdir", str(tmp_path / "w")) for word in COMMANDS[number].words]
    printed = ""
    for _ in range(2):
        ended = subprocess.run(
            [sys.executable, str(ROOT / "launch.py"), *words],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        printed += ended.stdout
    assert "{'step': 4, 'sec_per_step': " in printed and "is finished." in printed
    (run,) = (tmp_path / "w").iterdir()
    assert run.name.startswith("mutransformer_c4_")
    data = json.loads((run / "config.json").read_text())["data"]
    assert (data["dataset"], data["dataset_config"], data["tokenizer"]) == ("c4", "en", "t5-base")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["step"] == 4 and summary["val_loss"] > 0
