"""data.cache_dir=gs://...: the caches of several machines in a bucket that each of them mounts (storage.map)."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from document_sizes import OF_MU_TRANSFORMER
from launched import launched


def trained(folder: Path, text: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the first command of mu-Transformer's document in a separate folder, as on another machine."""
    folder.mkdir()
    sizes = [f"--config.{word}" for word in OF_MU_TRANSFORMER.split()]
    own = [f"data.path={text}", "data.tokenizer=bytes", "train.threads=1", "--workdir=w", *words]
    return launched(folder, "--config=mu_transformer/configs/small.py", "--mode=train", *sizes, *own)


def test_a_bucket_without_a_mount_is_refused_with_the_way_out(tiny_text: Path, tmp_path: Path) -> None:
    done = trained(tmp_path / "a", tiny_text, "data.cache_dir=gs://bucket/cache")
    assert done.returncode == 2 and not (tmp_path / "a" / "w").exists()
    assert "data.cache_dir: expected a local path, got the URL 'gs://bucket/cache'" in done.stderr
    assert "mount the storage (storage.map)" in done.stderr


def test_a_mounted_bucket_holds_the_cache_for_every_machine(tiny_text: Path, tmp_path: Path) -> None:
    words = ("data.cache_dir=gs://bucket/cache", f"storage.map=gs://bucket={tmp_path / 'mount'}")
    (tmp_path / "mount").mkdir()
    # Files changed in the last two seconds are read again, because another write could have the same times.
    newest = max(file.stat().st_mtime for file in tiny_text.rglob("*"))
    time.sleep(max(0.0, newest + 2.1 - time.time()))
    first = trained(tmp_path / "a", tiny_text, *words)
    assert first.returncode == 0, first.stderr
    (cache,) = (entry for entry in (tmp_path / "mount" / "cache").iterdir() if entry.is_dir())
    before = {file.name: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert not (tmp_path / "a" / "runs").exists()
    second = trained(tmp_path / "b", tiny_text, *words)
    assert second.returncode == 0 and "preparing a token cache" in first.stderr
    assert "preparing" not in second.stderr
    assert {file.name: file.stat().st_mtime_ns for file in cache.iterdir()} == before
    summaries = [next((tmp_path / name / "w").glob("*/summary.json")) for name in ("a", "b")]
    hashes = {json.loads(file.read_text())["final_hash"] for file in summaries}
    assert len(hashes) == 1 and len(hashes.pop()) == 64
    (run,) = (tmp_path / "b" / "w").iterdir()
    sampled = launched(tmp_path / "b", "sample", f"--workdir={run}", "--prompt", "a", "--max-tokens", "4")
    assert sampled.returncode == 0, sampled.stderr
