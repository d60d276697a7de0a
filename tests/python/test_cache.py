"""Token caches: contents, kills, damage, full disks, trust in what is there; the HDF5 module."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import _core, _h5
from mudd_core.data import Batcher, TokenCache, corpus, open_cache, prepare, synthetic
from mudd_core.data.listing import list_files
from mudd_core.errors import FormatError, SaveError, UserError
from text_settings import SOURCES, Settings, age, quiet


def test_settings_that_name_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    base = Settings(str(folder), str(tmp_path))
    with pytest.raises(UserError, match="or the path of a tokenizer"):
        prepare(replace(base, tokenizer="bppe"), progress=quiet)
    with pytest.raises(UserError, match="at least 257"):
        prepare(replace(base, vocab_size=256), progress=quiet)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


def test_cache_holds_the_documents_each_with_its_end(cache: TokenCache, folder: Path) -> None:
    found = corpus.scan(str(folder))
    for split in ("train", "valid"):
        ids, starts = cache.tokens(split), cache.document_starts(split)
        documents = found.documents(split)
        assert ids.dtype == np.uint16
        assert not ids.flags.writeable
        assert len(starts) == len(documents) == cache.place(split).documents
        ends = [*(int(s) for s in starts[1:]), len(ids)]
        for d, start, end in zip(documents, starts, ends, strict=True):
            assert ids[end - 1] == cache.eos_id
            assert cache.tokenizer.decode(ids[int(start) : end - 1]) == d.read().decode()
        assert (ids == cache.eos_id).sum() == len(documents)
    assert cache.valid_bytes == sum(d.size for d in found.valid)
    assert cache.vocab_size <= 300
    both = cache.tokens("train").tobytes() + cache.tokens("valid").tobytes()
    assert cache.content_hash == hashlib.sha256(both).hexdigest()


def test_equal_text_gives_equal_bytes(cache: TokenCache, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "elsewhere")
    other = prepare(Settings(str(tmp_path / "elsewhere"), str(tmp_path / "cache")), progress=quiet)
    assert other.fingerprint == cache.fingerprint
    for name in ("tokens.h5", "tokenizer.json"):
        assert (other.path / name).read_bytes() == (cache.path / name).read_bytes()


def test_large_vocabularies_take_uint32(folder: Path, tmp_path: Path) -> None:
    vocab = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz .\nT")} | {"</s>": 70000}
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []}))
    wide = prepare(Settings(str(folder), str(tmp_path / "c"), tokenizer=str(file)), progress=quiet)
    assert wide.vocab_size == 70001
    assert wide.train.width == 4
    assert wide.tokens("train").dtype == np.uint32
    assert wide.tokens("train").max() == wide.eos_id == 70000
    x, _ = Batcher(wide, "valid", 16).batch(0, 4)
    assert (x.reshape(-1) == wide.tokens("valid")[:64]).all()


def test_bytes_tokenizer(folder: Path, tmp_path: Path) -> None:
    plain = prepare(Settings(str(folder), str(tmp_path), tokenizer="bytes"), progress=quiet)
    assert (plain.vocab_size, plain.eos_id) == (257, 256)
    assert plain.n_valid_tokens == plain.valid_bytes + plain.valid.documents
    assert not (plain.path / "tokenizer.json").exists()
    t = plain.tokenizer
    assert t.decode(t.encode("naïve\n")) == "naïve\n"


KILLED = """
import os, signal, sys
from mudd_core.data import cache, loader
where, n = sys.argv[3], int(sys.argv[4])
count = 0
class Settings: path, cache_dir, tokenizer, vocab_size = sys.argv[1], sys.argv[2], "bpe", 300
def dying(module, name):
    old = getattr(module, name)
    def call(*args, **kwargs):
        global count
        count += 1
        if count == n: os.kill(os.getpid(), signal.SIGKILL)
        return old(*args, **kwargs)
    setattr(module, name, call)
if where: dying(cache, where)
loader.prepare(Settings, progress=lambda *a: None)
"""


@pytest.mark.parametrize(
    ("where", "n", "point"),
    [
        ("train_bpe", 1, ""), ("_spool", 1, ""), ("_spool", 2, ""), ("_write_h5", 1, ""),
        ("_write_array", 1, ""),
        ("_write_array", 4, ""), ("_write_array", 6, ""), ("", 0, "after_manifest_write"),
        ("", 0, "before_rename"),
        ("", 0, "after_rename"),
    ],
)  # fmt: skip
def test_a_killed_build_is_built_again_to_the_same_bytes(
    cache: TokenCache, folder: Path, tmp_path: Path, where: str, n: int, point: str
) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCES), "MUDD_KILL_AT": point}
    if not point:
        del env["MUDD_KILL_AT"]
    run = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), str(tmp_path), where, str(n)], env=env, check=False
    )
    assert run.returncode == -signal.SIGKILL
    left = [p for p in tmp_path.iterdir() if ".tmp-" in p.name]
    assert len(left) == (0 if point == "after_rename" else 1)  # the kill fell inside the build
    again = prepare(Settings(str(folder), str(tmp_path)), progress=quiet)
    for name in ("tokens.h5", "tokenizer.json"):
        assert (again.path / name).read_bytes() == (cache.path / name).read_bytes()
    assert not [p for p in tmp_path.iterdir() if ".tmp-" in p.name]


def test_every_cut_and_flip_of_a_cache_is_found(copy: Path, cache: TokenCache) -> None:
    file = copy / "tokens.h5"
    good = file.read_bytes()
    for size in [0, 1, 100, 4095, 5000, len(good) // 2, len(good) - 1]:
        file.write_bytes(good[:size])
        with pytest.raises(FormatError, match="delete the folder") as e:
            open_cache(copy)
        assert e.value.exit_code == 65
    rng = np.random.default_rng(0)
    places = [
        cache.train.offset,
        cache.valid.offset + 2 * cache.valid.count - 1,
        *rng.integers(0, len(good), 150),
    ]
    found = harmless = 0
    for at in places:
        bad = bytearray(good)
        bad[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(bad)
        try:
            opened = open_cache(copy)
            same = (
                opened == replace(cache, path=copy)
                and (opened.tokens("train") == cache.tokens("train")).all()
            )
            same = same and (opened.document_starts("train") == cache.document_starts("train")).all()
            same = same and (opened.document_starts("valid") == cache.document_starts("valid")).all()
            assert same, f"a flip at byte {at} changed the cache unnoticed"
            harmless += 1  # padding between datasets
        except (FormatError, ValueError):
            found += 1
    assert found > harmless // 4
    file.write_bytes(good)
    assert open_cache(copy) == replace(cache, path=copy)


def test_damaged_ids_are_found_when_the_cache_is_opened(
    copy: Path, cache: TokenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = bytearray((copy / "tokens.h5").read_bytes())
    raw[cache.valid.offset + 11] ^= 4
    (copy / "tokens.h5").write_bytes(raw)
    with pytest.raises(FormatError, match="block 0 of token ids is damaged"):
        open_cache(copy)
    monkeypatch.setattr("mudd_core.data.cache.EAGER_BYTES", 0)  # as for a large cache
    batches = Batcher(open_cache(copy), "valid", 16)
    with pytest.raises(FormatError, match=r"block 0 of token ids is damaged.*delete the folder"):
        batches.batch(0, 1)


def test_a_foreign_tokenizer_or_format_is_refused(copy: Path) -> None:
    text = (copy / "tokenizer.json").read_bytes()
    (copy / "tokenizer.json").write_bytes(text.replace(b"1.0", b"1.1"))
    with pytest.raises(FormatError, match="not the tokenizer"):
        open_cache(copy)
    (copy / "tokenizer.json").unlink()
    with pytest.raises(FormatError, match="cannot be read"):
        open_cache(copy)


def test_an_unfinished_file_is_refused(tmp_path: Path) -> None:
    with _h5.File.create(str(tmp_path / "tokens.h5")) as h5:
        h5.create_dataset("train/ids", np.uint16, 10)
    with pytest.raises(FormatError, match="no attribute 'format'"):
        open_cache(tmp_path)


def test_a_file_that_shrinks_while_open_is_an_error(copy: Path) -> None:
    batches = Batcher(open_cache(copy), "train", 32)
    batches.batch(0, 4)
    os.truncate(copy / "tokens.h5", 4200)
    with pytest.raises(FormatError, match="delete the folder"):
        batches.batch(0, batches.windows)


def test_unchanged_text_is_not_read_again_and_changed_text_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(shutil.copytree(folder, tmp_path / "text"))
    settings = Settings(str(text), str(tmp_path / "cache"))
    monkeypatch.setattr("mudd_core.data.listing.SETTLE_SECONDS", 0.0)
    first = prepare(settings, progress=quiet)
    reads: list[str] = []
    real = corpus.scan_listing
    monkeypatch.setattr(corpus, "scan_listing", lambda *a: (reads.append("read"), real(*a))[1])
    start = time.perf_counter()
    assert prepare(settings, progress=quiet) == first
    assert time.perf_counter() - start < 0.2
    assert not reads
    victim = text / "part-0003.txt"
    stamp = victim.stat()
    same_size = victim.read_text().replace("river", "revir")
    assert same_size != victim.read_text()
    victim.write_text(same_size)
    os.utime(victim, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # size and mtime as before
    second = prepare(settings, progress=quiet)
    assert reads == ["read"]
    assert second.fingerprint != first.fingerprint
    assert prepare(settings, fingerprint=first.fingerprint, progress=quiet) == first
    shutil.rmtree(first.path)
    with pytest.raises(UserError, match="not what this run was started with"):
        prepare(settings, fingerprint=first.fingerprint, progress=quiet)
    with pytest.raises(UserError, match="16 hexadecimal digits"):
        prepare(settings, fingerprint="../../etc", progress=quiet)


def test_text_touched_a_moment_ago_is_never_trusted(folder: Path, tmp_path: Path) -> None:
    text = Path(shutil.copytree(folder, tmp_path / "text"))
    age(text)  # the mtime is old, the ctime is now
    assert not list_files(str(text)).is_settled()
    prepare(Settings(str(text), str(tmp_path / "cache")), progress=quiet)
    assert not list((tmp_path / "cache").glob("listing-*"))


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UserError, match=r"data\.cache_dir"):
        prepare(Settings(str(folder), str(tmp_path / "file")), progress=quiet)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mudd_core.data.cache._spool", full)
    with pytest.raises(SaveError, match="No space left"):
        prepare(Settings(str(folder), str(tmp_path / "cache")), progress=quiet)
    assert [p.suffix for p in (tmp_path / "cache").iterdir()] == [".lock"]  # nothing half-made is left


def test_a_disk_that_fills_up_in_the_hdf5_library_is_a_clear_error(folder: Path, tmp_path: Path) -> None:
    code = KILLED.replace(
        "loader.prepare(Settings, progress=lambda *a: None)",
        """
import resource
def limited(*args, old=cache._write_h5):
    resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))
    return old(*args)
cache._write_h5 = limited
from mudd_core.errors import SaveError
try: loader.prepare(Settings, progress=lambda *a: None)
except SaveError as e: assert "cannot be written" in str(e) and "File too large" in str(e), e
else: raise SystemExit("no error")
""",
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code, str(folder), str(tmp_path), "", "0"], env=env, check=True)
    assert [p.suffix for p in tmp_path.iterdir()] == [".lock"]


def test_a_cache_in_a_folder_nobody_may_write_is_opened(
    cache: TokenCache, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(cache.path, tmp_path / "shared" / cache.fingerprint)

    def refuse(*args: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_core, "replace_file", refuse)
    monkeypatch.setattr("mudd_core.data.listing.SETTLE_SECONDS", 0.0)
    assert prepare(Settings(str(folder), str(tmp_path / "shared")), progress=quiet) == replace(
        cache, path=tmp_path / "shared" / cache.fingerprint
    )
    assert [p.name for p in (tmp_path / "shared").iterdir()] == [cache.fingerprint]  # not even a lock


def test_a_cache_inside_the_text_is_not_text(tmp_path: Path) -> None:
    synthetic.write_folder(tmp_path / "text", 40, 600)
    settings = Settings(str(tmp_path / "text"), str(tmp_path / "text" / "runs" / "cache"))
    assert prepare(settings, progress=quiet) == prepare(settings, progress=quiet)


def test_builders_wait_for_each_other(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), str(tmp_path), "", "0"]
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    runs = [subprocess.Popen(command, env=env) for _ in range(3)]
    assert [r.wait(120) for r in runs] == [0, 0, 0]
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 1


@pytest.mark.parametrize("order", [("h5py", "mudd_core._h5"), ("mudd_core._h5", "h5py")])
def test_h5py_and_ours_live_together(cache: TokenCache, order: tuple[str, str]) -> None:
    code = f"""
import importlib, sys
for name in {order!r}: importlib.import_module(name)
import h5py
from mudd_core import _h5
with _h5.File.open(sys.argv[1]) as f: ours = f.read("valid/ids")
with h5py.File(sys.argv[1]) as f:
    assert (f["valid/ids"][:] == ours).all() and len(ours) > 100
    assert f["train/ids"].chunks is None and f["train/ids"].compression is None
    assert f.attrs["train_tokens"] == f["train/ids"].size
"""
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code, str(cache.file)], env=env, check=True)


def test_offset_is_where_h5py_finds_the_bytes(cache: TokenCache) -> None:
    import h5py

    with h5py.File(cache.file) as f:
        assert f["train/ids"].id.get_offset() == cache.train.offset
    assert _h5.dataset_offset(str(cache.file), "train/ids") == (
        cache.train.offset,
        cache.train.count,
        "uint16",
    )
    raw = cache.file.read_bytes()[cache.train.offset :][: 2 * cache.train.count]
    assert raw == cache.tokens("train").tobytes()


def test_only_contiguous_datasets_have_an_offset(tmp_path: Path) -> None:
    import h5py

    with h5py.File(tmp_path / "x.h5", "w", libver=("v110", "v110")) as f:
        f.create_dataset("chunked", data=np.arange(1000), chunks=(10,))
        f.create_dataset("flat", data=np.arange(1000))
    with pytest.raises(FormatError, match="not contiguous"):
        _h5.dataset_offset(str(tmp_path / "x.h5"), "chunked")
    offset, count, dtype = _h5.dataset_offset(str(tmp_path / "x.h5"), "flat")
    raw = np.frombuffer((tmp_path / "x.h5").read_bytes(), dtype, count, offset)
    assert (raw == np.arange(1000)).all()


def test_core_does_not_load_hdf5() -> None:
    code = (
        "import mudd_core._core, mudd_core.data;"
        "maps = open('/proc/self/maps').read(); assert 'hdf5' not in maps;"
        "import mudd_core._h5; assert 'hdf5' in open('/proc/self/maps').read()"
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
