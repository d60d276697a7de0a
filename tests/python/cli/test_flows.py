"""From a user's text to a trained model, with mudd_core's own commands only.

Other tests cover the other flows: test_maxtext_flows.py (records to TokenFormer and MUDDFormer), test_grammar_jax_lm.py
(preprocess to Parquet to GPT-2), test_sweep.py and test_mup.py (a sweep of two learning rates, `mup check`). The dry
runs of the benchmark are in test_document_moe_runs.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from document_sizes import texts, write_lines
from mudd_core.cli import main
from tiny_run import CONFIG


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def summary(run: str) -> dict[str, float]:
    found: dict[str, float] = json.loads(Path(run, "summary.json").read_text())
    return found


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_records_to_a_dense_model(kind: str) -> None:
    if kind == "jsonl":
        write_lines(Path("data/a.jsonl"), texts(400))
    else:
        import pyarrow
        import pyarrow.parquet

        Path("data").mkdir()
        pyarrow.parquet.write_table(pyarrow.table({"text": texts(400)}), "data/a.parquet")
    run = ["--workdir=run", "data.path=data", "data.cache_dir=cache", "train.steps=4", "train.save_every=4"]
    assert main([f"--config={CONFIG}", *run, "optim.warmup_steps=1"]) == 0
    assert main(["validate", "--workdir=run"]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["model"]["family"] == "transformer_pp" and summary("run")["steps"] == 4
