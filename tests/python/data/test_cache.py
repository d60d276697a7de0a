"""Token caches: contents, damage, and the checks of an existing cache."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mudd_core import _core, _h5
from mudd_core.base.errors import FormatError, UserError
from mudd_core.data import Batcher, TokenCache, open_cache, prepare, synthetic
from mudd_core.data.documents import plain_text
from mudd_core.data.sources import corpus, listing
from mudd_core.data.sources.listing import list_files
from text_settings import Settings, age, quiet, watched_opens


def test_settings_that_name_no_tokenizer(folder: Path, tmp_path: Path) -> None:
    base = Settings(str(folder), str(tmp_path))
    with pytest.raises(UserError, match=r"expected bpe, bytes, a tokenizer.json, .* got 'bppe'"):
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


def test_the_folder_of_caches_may_be_a_link_to_another_disk(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    made = prepare(Settings(str(folder), str(tmp_path / "link"), tokenizer="bytes"), progress=quiet)
    assert made.path.parent == tmp_path / "disk"
    again = prepare(Settings(str(folder), str(tmp_path / "link"), tokenizer="bytes"), progress=quiet)
    assert again.path == made.path


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
    monkeypatch.setattr("mudd_core.data.cache.token_cache.EAGER_BYTES", 0)  # as for a large cache
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


def test_a_cache_under_another_ones_name_is_refused(copy: Path, cache: TokenCache) -> None:
    other = copy.with_name("0123456789abcdef")
    copy.rename(other)
    with pytest.raises(FormatError, match=f"the cache {cache.fingerprint} under the name {other.name}"):
        open_cache(other)


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
        batches.batch(0, batches.rows)


def test_unchanged_text_is_not_read_again_and_changed_text_is(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(shutil.copytree(folder, tmp_path / "text"))
    settings = Settings(str(text), str(tmp_path / "cache"))
    monkeypatch.setattr("mudd_core.data.sources.listing.SETTLE_SECONDS", 0.0)
    first = prepare(settings, progress=quiet)
    reads: list[str] = []
    real = plain_text.scan_listing
    monkeypatch.setattr(plain_text, "scan_listing", lambda *a: (reads.append("read"), real(*a))[1])
    with watched_opens() as opened:
        assert prepare(settings, progress=quiet) == first
    assert opened and not [path for path in opened if path.startswith(str(text))]
    assert not reads
    victim = text / "part-0003.txt"
    stamp = victim.stat()
    same_size = victim.read_text().replace("river", "revir")
    assert same_size != victim.read_text()
    victim.write_text(same_size)
    os.utime(victim, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # same size and mtime as before
    with watched_opens() as opened:
        second = prepare(settings, progress=quiet)
    assert reads == ["read"] and str(victim) in opened
    assert second.fingerprint != first.fingerprint
    assert prepare(settings, fingerprint=first.fingerprint, progress=quiet) == first
    shutil.rmtree(first.path)
    with pytest.raises(UserError, match="expected the text and tokenizer of the start of this run"):
        prepare(settings, fingerprint=first.fingerprint, progress=quiet)
    with pytest.raises(UserError, match="16 hexadecimal digits"):
        prepare(settings, fingerprint="../../etc", progress=quiet)


def test_text_touched_a_moment_ago_is_never_trusted(folder: Path, tmp_path: Path) -> None:
    text = Path(shutil.copytree(folder, tmp_path / "text"))
    age(text)  # the mtime is old, but the ctime is now
    assert not list_files(str(text)).is_settled()
    prepare(Settings(str(text), str(tmp_path / "cache")), progress=quiet)
    assert not list((tmp_path / "cache").glob("listing-*"))


def test_a_cache_in_a_folder_nobody_may_write_is_opened(
    cache: TokenCache, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(cache.path, tmp_path / "shared" / cache.fingerprint)

    def refuse(*args: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_core, "replace_file", refuse)
    monkeypatch.setattr("mudd_core.data.sources.listing.SETTLE_SECONDS", 0.0)
    assert prepare(Settings(str(folder), str(tmp_path / "shared")), progress=quiet) == replace(
        cache, path=tmp_path / "shared" / cache.fingerprint
    )
    assert [p.name for p in (tmp_path / "shared").iterdir()] == [cache.fingerprint]  # not even a lock


def test_a_cache_inside_the_text_is_not_text(tmp_path: Path) -> None:
    synthetic.write_folder(tmp_path / "text", 40, 600)
    settings = Settings(str(tmp_path / "text"), str(tmp_path / "text" / "runs" / "cache"))
    assert prepare(settings, progress=quiet) == prepare(settings, progress=quiet)


def test_files_of_one_folder_have_separate_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "SETTLE_SECONDS", 0.0)
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("".join(f"line {i} of {name}\n\n" for i in range(400)))
    both = [
        Settings(str(tmp_path / name), str(tmp_path / "cache"), "bytes") for name in ("one.txt", "two.txt")
    ]
    for settings in both:
        prepare(settings, progress=quiet)
    monkeypatch.setattr(plain_text, "scan_listing", lambda *_: pytest.fail("the text is read again"))
    for settings in both:
        prepare(settings, progress=quiet)
