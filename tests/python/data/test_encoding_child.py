"""A child process encodes the documents of a token cache: equal ids, errors that arrive, no leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.data.documents.encoding import ChildTokenizer
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import TokenizerSource
from places import ROOT

TEXTS = [b"one text", "zwölf Wörter".encode(), b"", b"a b c " * 50]


@pytest.fixture(scope="module")
def source() -> TokenizerSource:
    return TokenizerSource("json", train_bpe(TEXTS, len(TEXTS), 300), "tokenizer.json")


def child_of(source: TokenizerSource, data: bytes | None = None) -> ChildTokenizer:
    return ChildTokenizer(source.make(), source, source.data if data is None else data, lambda: None)


def test_the_ids_are_those_of_this_process(source: TokenizerSource) -> None:
    child = child_of(source)
    try:
        for texts in (TEXTS, TEXTS[:1], []):
            for got, wanted in zip(
                child.encode_documents(texts), source.make().encode_documents(texts), strict=True
            ):
                np.testing.assert_array_equal(got, wanted)
                assert got.dtype == wanted.dtype
        assert child.decode(child.encode("one text")) == "one text"
    finally:
        child.close()


def test_a_killed_process_is_named(source: TokenizerSource) -> None:
    child = child_of(source)
    child.encode_documents(TEXTS)
    assert child._child is not None
    os.kill(child._child.pid, signal.SIGKILL)
    child._child.code()
    with pytest.raises(UserError, match=r"ended with signal SIGKILL \(out of memory\?\)"):
        child.encode_documents(TEXTS)
    child.close()


def test_an_error_of_the_process_arrives(source: TokenizerSource) -> None:
    child = child_of(source, b"{}")
    with pytest.raises((UserError, ValueError, RuntimeError), match=r"tokenizer\.json"):
        child.encode_documents(TEXTS)
    child.close()


def test_a_stop_ends_a_process_that_is_busy(source: TokenizerSource) -> None:
    def stop() -> None:
        raise StopRequestedError("stop requested")

    child = ChildTokenizer(source.make(), source, source.data, stop)
    with pytest.raises(StopRequestedError):
        child.encode_documents([b"word " * 2_000_000])
    process = child._child
    child.close()
    assert process is not None and process.code() == -signal.SIGKILL


def test_a_first_start_takes_the_memory_of_its_plan(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for number, file in enumerate(sorted((ROOT / "python").rglob("*.py"))[:250]):
        (text / f"{number}.txt").write_text(file.read_text())
    time.sleep(2.1)  # files changed in the last two seconds are read again, so the cache would not be reused
    words = [sys.executable, str(ROOT / "launch.py"), "--config=tiny.py", f"data.path={text}"]
    words += [f"--workdir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'cache'}", "train.steps=2"]
    words += ["train.eval_every=0", "eval.max_batches=1", "optim.warmup_steps=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}

    def run(*more: str) -> str:
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=True, env=environment)
        return done.stdout

    plan = run("--plan")
    assert "first start   about" in plan
    planned = float(plan.partition("memory ")[2].split()[0])
    run()
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    peak = max(event.get("peak_memory", 0) for event in events) / (1 << 20)
    assert peak < 1.1 * planned
    assert "first start" not in run("--plan")
