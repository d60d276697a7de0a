"""The profile: every node once, FLOPs as in the formula, unchanged bits, and a valid trace file."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.errors import SaveError
from mudd_core.engine.engine import Engine
from mudd_core.engine.flops import flops_per_token
from mudd_core.tools import profile_command
from mudd_core.tools.profile import Limits, Profile, Timing, by_op, by_part, profile, table, write_trace

WORDS = ["train.batch_size=4", "train.seq_len=24", "model.d_model=32", "model.n_head=2", "model.d_ff=48"]

LIMITS = Limits(1e11, 3e10)


def engine(*words: str) -> Engine:
    config = mc.load_config("tiny.py", [*WORDS, *words])
    model = mc.Model(dataclasses.replace(config.model, vocab_size=61, max_seq_len=24), seed=3)
    return Engine(config, model)


def test_every_node_is_timed_and_flops_are_the_formulas() -> None:
    e = engine("train.micro_batch_size=2")
    found = profile(e, steps=3, warmup=1)
    assert found.tokens == 96 and 0 < sum(t.seconds for t in found.timings) < found.seconds
    ops = {(t.op, t.phase) for t in found.timings}
    assert {("linear", "forward"), ("linear", "backward"), ("attention", "backward")} <= ops
    assert all(t.end >= t.begin > 0 and t.bytes > 0 for t in found.timings)
    # Three steps of two runs are six calls: the minimum is at most the mean, and smaller for some nodes.
    assert all(0 < t.least <= t.seconds * (1 + 1e-9) for t in found.timings)
    assert any(t.least < 0.999 * t.seconds for t in found.timings)
    wanted = flops_per_token(e.model.config, 61, 24) * found.tokens
    # The first layer's q, k and v also have input gradients, as the formula assumes. Both count T / 2 keys per query.
    assert sum(t.flops for t in found.timings) == pytest.approx(wanted, rel=1e-6)


def test_looking_changes_nothing() -> None:
    watched, plain = engine(), engine()
    profile(watched, steps=2, warmup=1)
    ids = np.arange(4 * 25, dtype=np.int32).reshape(4, 25) % 61
    batch = {"inputs": ids[:, :-1].copy(), "targets": ids[:, 1:].copy()}
    fresh = engine()
    for name, view in watched.model.parameters.items():
        np.testing.assert_array_equal(view, plain.model.parameters[name], err_msg=name)
    fresh.executor.profile(True)
    assert fresh.train_step(0, 1e-3, batch).loss == plain.train_step(0, 1e-3, batch).loss
    for name, view in fresh.model.parameters.items():
        np.testing.assert_array_equal(view, plain.model.parameters[name], err_msg=name)


def test_the_tables_add_up_and_the_trace_opens(tmp_path: Path) -> None:
    found = profile(engine(), steps=1, warmup=1)
    for key in (by_op, by_part):
        lines = table(found, LIMITS, key).splitlines()
        rows = lines[1:-1]
        shares = [float(line[line.index("%") - 6 : line.index("%")]) for line in rows]
        # Each entry is rounded to a tenth of a percent.
        assert sum(shares) == pytest.approx(100, abs=0.06 * len(rows))
        least = 1e3 * sum(t.least for t in found.timings)
        assert f"{least:.3f}" in lines[-1] and "least" in lines[0]
        assert any("clip, optimizer" in line for line in rows) and "tokens/s" in lines[-1]
    assert "blocks.attn.q:linear forward" in table(found, LIMITS, by_part)
    write_trace(found, LIMITS, tmp_path / "t.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert (
        len(spans) == len([t for t in found.timings if t.end > t.begin]) and min(s["ts"] for s in spans) == 0
    )
    assert all(s["args"]["share of roofline"] > 0 and s["args"]["MB"] > 0 for s in spans)


def test_a_trace_that_cannot_be_written_is_a_failed_write(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match="--trace"):
        write_trace(Profile([], 1.0, 1), LIMITS, tmp_path / "missing" / "t.json.gz")


def test_the_roofline_is_the_slower_of_products_and_memory() -> None:
    timing = Timing("a", "linear", "forward", seconds=4.0, flops=2e11, bytes=3e10, begin=0, end=4, least=3)
    assert LIMITS.seconds(timing) == 2.0  # limited by FLOPs; the bytes alone would need one second
    assert LIMITS.seconds(dataclasses.replace(timing, bytes=9e10)) == 3.0
    found = Profile([timing, dataclasses.replace(timing, op="norm", flops=0.0)], 10.0, 20)
    head, *rows = table(found, LIMITS).splitlines()
    assert head.split() == ["ms", "least", "share", "GFLOP", "GFLOP/s", "peak", "GB", "GB/s", "roof"]
    cells = {row.split("  ")[0]: row.split() for row in rows}
    products = cells["linear forward"][2:]
    assert products == ["4000.000", "3000.000", "40.0%", "200.000", "50.0", "50%", "30.000", "7.5", "50%"]
    assert cells["norm forward"][2:] == ["4000.000", "3000.000", "40.0%", "30.000", "7.5", "25%"]
    assert cells["clip, optimizer, batch"][-2:] == ["2000.000", "20.0%"]
    whole = cells["whole step"][2:]
    assert whole[:6] == ["10000.000", "6000.000", "100.0%", "200.000", "20.0", "20%"]
    assert whole[6:] == ["60.000", "6.0", "30%", "2", "tokens/s"]


def test_the_command_writes_table_and_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "step.json.gz"
    words = [*WORDS, "model.n_layer=1", f"data.cache_dir={tmp_path}"]
    assert (
        profile_command.main(["--config=tiny.py", "--steps=1", "--warmup=1", f"--trace={trace}", *words]) == 0
    )
    text = capsys.readouterr().out
    assert "GB/s" in text.splitlines()[0] and "attention backward" in text and str(trace) in text
    assert json.loads(gzip.decompress(trace.read_bytes()))["displayTimeUnit"] == "ms"
