"""is_sweep: the table and done.txt at the end of a run, which later commands skip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudd_core.cli import main

SHAPE = (
    "d_model=16",
    "d_base=16",
    "d_head=8",
    "qk_scale=0.125",
    "n_layer=1",
    "sequence_len=32",
    "tokens_per_global_batch=128",
    "n_pretrain_step=4",
    "n_warmup_step=1",
    "n_print_step=2",
    "n_save_step=2",
    "n_eval_step=1",
    "is_sweep=True",
)
COLUMNS = (
    "group",
    "seed",
    "fold",
    "dtype",
    "tokens_per_batch",
    "lr",
    "wd",
    "width",
    "depth",
    "nonlin",
    "optim",
    "rule",
    "sched",
    "steps",
    "loss",
)


def sweep(text: Path, folder: Path, rate: str, *words: str) -> int:
    data = (f"data.path={text}", "data.tokenizer=bytes", f"data.cache_dir={text.parent / 'cache'}")
    common = ("--config=mup/tiny.py", f"--workdir={folder}", "--mode=train", *data, "--threads", "1")
    return main([*common, *(f"--config.{word}" for word in (*SHAPE, f"lr_base={rate}")), *words])


def test_two_rates_in_one_folder_give_two_rows(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rate in ("0.25", "0.015625"):
        assert sweep(tiny_text, tmp_path, rate) == 0
    rows = []
    for run in sorted(tmp_path.iterdir()):
        head, row = (run / "sweep.tsv").read_text().splitlines()
        assert tuple(head.split("\t")) == COLUMNS and (run / "done.txt").is_file()
        rows.append(dict(zip(COLUMNS, row.split("\t"), strict=True)))
        limited = json.loads((run / "summary.json").read_text())["val_loss"]
        assert float(rows[-1]["loss"]) != limited  # of the whole split, not of n_eval_step batches
        assert main(["validate", f"--workdir={run}", "eval.max_batches=0"]) == 0
        assert f"validation loss {float(rows[-1]['loss']):.6f}" in capsys.readouterr().out
    assert {row["lr"] for row in rows} == {"0.25", "0.015625"}
    assert {(row["width"], row["depth"], row["steps"], row["group"]) for row in rows} == {
        ("16", "1", "4", "default")
    }


def test_a_run_with_done_txt_is_skipped_and_one_without_is_finished(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(tiny_text, tmp_path, "0.25") == 0
    (run,) = tmp_path.iterdir()
    table = (run / "sweep.tsv").read_bytes()
    before = (run / "metrics.jsonl").stat().st_mtime_ns
    capsys.readouterr()
    assert sweep(tiny_text, tmp_path, "0.25") == 0
    assert "is skipped" in capsys.readouterr().out
    assert (run / "metrics.jsonl").stat().st_mtime_ns == before
    (run / "done.txt").unlink()  # as if killed between the last save and the table
    (run / "sweep.tsv").unlink()
    assert sweep(tiny_text, tmp_path, "0.25") == 0
    assert (run / "sweep.tsv").read_bytes() == table and (run / "done.txt").is_file()
