"""From text to batches: corpus rules, caches under kills and damage, order of samples, bad input."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import _core, _h5
from mudd_core.data import Batcher, TokenCache, corpus, open_cache, prepare, synthetic
from mudd_core.data.listing import list_files
from mudd_core.errors import FormatError, SaveError, UserError

SOURCES = Path(__file__).parents[2] / "python"


@dataclass(frozen=True)
class Settings:
    path: str
    cache_dir: str
    tokenizer: str = "bpe"
    vocab_size: int = 300


def quiet(phase: str, done: int, total: int) -> None:
    """No progress on the terminal."""


def age(path: Path) -> None:
    """Sets modification times back; the ctime stays new, which is what `settle` waits for."""
    for p in [path, *path.rglob("*")]:
        os.utime(p, (1e9, 1e9))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write_folder(tmp_path_factory.mktemp("text") / "docs", 60, 1500)


@pytest.fixture(scope="module")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TokenCache:
    return prepare(Settings(str(folder), str(tmp_path_factory.mktemp("cache"))), progress=quiet)


@pytest.fixture
def copy(cache: TokenCache, tmp_path: Path) -> Path:
    """A cache folder to damage."""
    return Path(shutil.copytree(cache.path, tmp_path / cache.fingerprint))


# Corpus


def test_default_corpus_follows_the_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = tmp_path / "lib"
    taken = {
        "b.py": b"b = 1\n",
        "pkg/a.py": b"a = 1\n",
        "pkg/testing/t.py": b"t\n",
        "B.py": b"",
        "conf.py": b"\xc3\xa9\n",
    }
    left = (
        "site-packages/x.py", "dist-packages/x.py", "test/x.py", "pkg/tests/x.py", "pkg/idle_test/x.py",
        "encodings/x.py", "pydoc_data/x.py", "__pycache__/x.py", "config-3.11-x/x.py", "_sysconfigdata_x.py",
        "data.txt", "x.pyc",
    )  # fmt: skip
    for name, data in [*taken.items(), *((n, b"no\n") for n in left), ("latin.py", b"\xe9\n")]:
        (lib / name).parent.mkdir(parents=True, exist_ok=True)
        (lib / name).write_bytes(data)
    (lib / "link.py").symlink_to(lib / "b.py")
    (lib / "linked").symlink_to(lib / "pkg")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(lib))
    found = corpus.scan("")
    names = [os.path.relpath(os.fsdecode(d.path), lib) for d in (*found.train, *found.valid)]
    assert sorted(names) == sorted(taken)
    assert found.left_out == 1
    h = hashlib.sha256()
    for name in ["B.py", "b.py", "conf.py", "pkg/a.py", "pkg/testing/t.py"]:  # sorted as bytes
        h.update(len(taken[name]).to_bytes(8, "little") + taken[name])
    assert found.hash == h.hexdigest()


def test_held_out_documents_are_those_with_digest_7_mod_20(folder: Path) -> None:
    found = corpus.scan(str(folder))
    files = sorted(folder.iterdir())
    held = [f for f in files if int(hashlib.sha256(f.read_bytes()).hexdigest(), 16) % 20 == 7]
    assert 0 < len(held) < len(files)
    assert [Path(os.fsdecode(d.path)) for d in found.valid] == held
    assert len(found.train) + len(found.valid) == len(files)


@pytest.mark.parametrize("size", [3000, 20_000, 400_000])
def test_one_file_is_cut_into_documents_that_join_to_the_file(tmp_path: Path, size: int) -> None:
    file = tmp_path / "a.txt"
    data = (synthetic.text(size // 2) + "é" * (size // 4) + "\n" + "x" * (size // 2)).encode()
    file.write_bytes(data)
    found = corpus.scan(str(file))
    documents = sorted((*found.train, *found.valid), key=lambda d: d.start)
    assert b"".join(d.read() for d in documents) == data
    for d in documents:
        d.read().decode("utf-8")
    assert found.valid
    assert max(d.size for d in documents) <= 4 * max(512, size * 2 // 256) + 4
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(file, alone)
    assert corpus.scan(str(alone)).hash == found.hash


def test_something_is_always_held_out(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / f"{i}.txt").write_text(f"document {i} ")
    found = corpus.scan(str(tmp_path))
    assert len(found.train) == len(found.valid) == 1


def test_folder_leaves_out_links_dots_and_binaries(tmp_path: Path) -> None:
    synthetic.write_folder(tmp_path / "in", 3, 200)
    before = corpus.scan(str(tmp_path / "in"))
    (tmp_path / "in" / ".hidden").write_text("no")
    (tmp_path / "in" / "binary").write_bytes(b"a\0b")
    (tmp_path / "in" / "latin.txt").write_bytes(b"caf\xe9")
    (tmp_path / "in" / "link.txt").symlink_to(tmp_path / "in" / "part-0000.txt")
    after = corpus.scan(str(tmp_path / "in"))
    assert after.hash == before.hash
    assert after.left_out == 2


def test_a_document_that_changes_after_hashing_is_an_error(tmp_path: Path) -> None:
    synthetic.write_folder(tmp_path, 3, 200)
    found = corpus.scan(str(tmp_path))
    Path(os.fsdecode(found.train[0].path)).write_text("other")
    with pytest.raises(UserError, match="changed while"):
        found.train[0].read()


# Bad input


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: str(p / "nowhere"), "No such file"),
        (lambda p: str(p), "empty corpus"),
        (lambda p: _written(p / "empty.txt", b""), "empty corpus"),
        (lambda p: _written(p / "latin.txt", b"caf\xe9 " * 100), "UTF-8"),
        (lambda p: _written(p / "short.txt", b"one document only"), "corpus too small"),
        (lambda p: "a\0b", "NUL"),
    ],
)
def test_unusable_text_is_a_user_error(tmp_path: Path, make: Any, words: str) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(UserError, match=words) as e:
        prepare(Settings(make(tmp_path / "here"), str(tmp_path / "cache")), progress=quiet)
    assert e.value.exit_code == 2
    assert not (tmp_path / "cache").exists()


def _written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def test_corpus_shorter_than_one_window(cache: TokenCache) -> None:
    with pytest.raises(UserError, match="corpus shorter than one window"):
        Batcher(cache, "train", cache.n_train_tokens)
    assert Batcher(cache, "train", cache.n_train_tokens - 1).windows == 1


def test_settings_that_name_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    base = Settings(str(folder), str(tmp_path))
    with pytest.raises(UserError, match="or the path of a tokenizer"):
        prepare(replace(base, tokenizer="bppe"), progress=quiet)
    with pytest.raises(UserError, match="at least 257"):
        prepare(replace(base, vocab_size=256), progress=quiet)
    assert not [p for p in tmp_path.iterdir() if p.is_dir()]


# Cache


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
    h5py = pytest.importorskip("h5py")
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
    h5py = pytest.importorskip("h5py")
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


# Batches


def test_batches_depend_on_the_index_only(cache: TokenCache) -> None:
    a, b = Batcher(cache, "train", 64, seed=3), Batcher(cache, "train", 64, seed=3)
    n = a.windows
    inputs, targets = a.batch(0, 2 * n)
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    for sample in (2 * n - 1, 0, n, 7):
        x, y = b.batch(sample, 1)
        assert (x[0] == inputs[sample]).all()
        assert (y[0] == targets[sample]).all()
    ids = cache.tokens("train")
    starts = np.array([a.core.start_of(i) for i in range(2 * n)])
    for i in range(2 * n):
        assert (inputs[i] == ids[starts[i] : starts[i] + 64]).all()
    assert len(set(starts[:n])) == len(set(starts[n:])) == n
    assert (starts[:n] % 64 == starts[0] % 64).all()
    assert starts[0] % 64 != starts[n] % 64
    assert list(starts[:n]) != sorted(starts[:n])
    other = Batcher(cache, "train", 64, seed=4)
    assert [other.core.start_of(i) for i in range(n)] != list(starts[:n])


def test_validation_covers_every_token_once(cache: TokenCache) -> None:
    batches = Batcher(cache, "valid", 50)
    ids = cache.tokens("valid").astype(np.int32)
    inputs = np.empty((batches.windows + 1, 50), np.int32)
    targets = np.empty_like(inputs)
    assert batches.fill(0, inputs, targets) == len(ids) - 1
    assert (inputs.reshape(-1)[: len(ids) - 1] == ids[:-1]).all()
    assert (targets.reshape(-1)[: len(ids) - 1] == ids[1:]).all()
    assert (targets.reshape(-1)[len(ids) - 1 :] == -1).all()
    assert (inputs.reshape(-1)[len(ids) - 1 :] == cache.eos_id).all()


def test_an_id_outside_the_vocabulary_is_found_at_batch_time(cache: TokenCache) -> None:
    liar = replace(cache, vocab_size=int(cache.tokens("train").max()))
    with pytest.raises(FormatError, match="outside the vocabulary"):
        Batcher(replace(liar, eos_id=0), "train", 64).batch(0, Batcher(cache, "train", 64).windows)


def test_fill_refuses_wrong_arrays(cache: TokenCache) -> None:
    batches = Batcher(cache, "train", 16)
    good = np.empty((4, 16), np.int32)
    for bad in (np.empty((4, 15), np.int32), np.empty((3, 16), np.int32), np.empty(64, np.int32),
                np.empty((16, 4), np.int32).T):  # fmt: skip
        with pytest.raises(ValueError, match="targets"):
            batches.fill(0, good, bad)
    with pytest.raises(TypeError, match="int32"):
        batches.fill(0, good, np.empty((4, 16), np.int64))  # type: ignore[arg-type]
    frozen = np.empty((4, 16), np.int32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        batches.fill(0, good, frozen)
    with pytest.raises(ValueError, match="samples"):
        batches.fill(-1, good, good)
    with pytest.raises(ValueError, match="split"):
        Batcher(cache, "test", 16)  # type: ignore[arg-type]
    assert batches.fill(0, good[:0], good[:0]) == 0


def test_one_batcher_in_two_threads_is_an_error_or_right(cache: TokenCache) -> None:
    batches = Batcher(cache, "train", 32)
    wanted = batches.batch(0, 500)[0]
    refused, wrong = [], []

    def work() -> None:
        for _ in range(50):
            try:
                if not (batches.batch(0, 500)[0] == wanted).all():
                    wrong.append(1)
            except RuntimeError as e:
                refused.append(str(e))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert all("two threads" in r for r in refused)


# Random numbers


def test_philox_and_permutation_from_python() -> None:
    assert list(_core.philox([0, 0, 0, 0], [0, 0])) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    images = [_core.permute(i, 1000, seed=1, purpose="data.order") for i in range(1000)]
    assert sorted(images) == list(range(1000))
    assert images != sorted(images)
    with pytest.raises(ValueError, match="permute"):
        _core.permute(5, 5, seed=0, purpose="x")
    whole = _core.random_normal(0, 1001, seed=9, purpose="w", stddev=0.02)
    part = _core.random_normal(333, 1001, seed=9, purpose="w", stddev=0.02)
    assert (whole[333:] == part).all()
    assert abs(whole.std() - 0.02) < 0.002
