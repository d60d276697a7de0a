"""The seal of a token cache: any changed value is detected, and caches of earlier versions still work."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fake_engine import FakeEngine
from fake_runs import make
from mudd_core.base.errors import FormatError, UserError
from mudd_core.config import load_config
from mudd_core.data import TokenCache, open_cache, prepare
from mudd_core.data.cache.file import seal_of
from mudd_core.data.cache.token_cache import FORMAT_UNSEALED, fingerprint_of
from mudd_core.run.build.saved_model import load_run
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.run_folder import RunFolder
from text_settings import Settings, quiet


def edit(folder: Path, resealed: bool = False, **attributes: Any) -> None:
    """Change attributes of tokens.h5 with h5py. resealed: compute the seal again."""
    from mudd_core import _h5

    with h5py.File(folder / "tokens.h5", "r+") as file:
        for name, value in attributes.items():
            del file.attrs[name]
            if value is not None:
                file.attrs[name] = np.bytes_(value) if isinstance(value, str) else np.int64(value)
    if resealed:
        with _h5.File.open(str(folder / "tokens.h5")) as written:
            again = seal_of(written, "tokens.h5")
        edit(folder, seal=again)


def unseal(folder: Path) -> None:
    """Convert a cache to the format of the version before seals."""
    edit(folder, format=FORMAT_UNSEALED)
    with h5py.File(folder / "tokens.h5", "r+") as file:
        del file.attrs["seal"]


CHANGES: dict[str, Any] = {
    "train_text_bytes": 7,
    "valid_text_bytes": 1,
    "eos_id": 5,
    "vocab_size": 299,
    "train_documents": 3,
    "corpus_hash": "0" * 64,
    "content_hash": "0" * 64,
    "tokenizer_hash": "0" * 64,
    "tokenizer": "bpe:300",
    "seal": "0" * 64,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_number_and_hash_is_sealed(copy: Path, name: str) -> None:
    edit(copy, **{name: CHANGES[name]})
    with pytest.raises(FormatError, match="delete the folder") as caught:
        open_cache(copy)
    assert caught.value.exit_code == 65


def test_checksums_of_blocks_are_sealed(copy: Path) -> None:
    """Store other ids with correct block checksums; the seal covers the checksums."""
    from mudd_core import _core

    with h5py.File(copy / "tokens.h5", "r+") as file:
        ids = file["valid/ids"]
        ids[0] = ids[0] ^ 1
        file["valid/ids_crc32c"][...] = _core.crc32c_blocks(ids[...])
    with pytest.raises(
        FormatError, match="its totals, hashes or checksums have changed since it was written"
    ):
        open_cache(copy)


def test_checksums_of_another_type_are_refused(copy: Path) -> None:
    with h5py.File(copy / "tokens.h5", "r+") as file:
        del file["train/ids_crc32c"]
        file["train/ids_crc32c"] = np.array([np.nan])
    with pytest.raises(FormatError, match="train/ids_crc32c: expected uint32, got float64"):
        open_cache(copy)


def test_a_hand_made_cache_does_not_fit_its_name_its_tokenizer_or_its_text(
    cache: TokenCache, copy: Path, folder: Path, tmp_path: Path
) -> None:
    """Compute the seal again after each change, so that only the other checks can detect it."""
    edit(copy, corpus_hash="1" * 64, resealed=True)
    with pytest.raises(FormatError, match="does not match its corpus and tokenizer"):
        open_cache(copy)
    edit(copy, corpus_hash=cache.corpus_hash, eos_id=cache.eos_id + 1, resealed=True)
    with pytest.raises(FormatError, match="but its tokenizer has"):
        _ = open_cache(copy).tokenizer
    edit(copy, eos_id=cache.eos_id, valid_text_bytes=cache.valid_bytes - 1, resealed=True)
    with pytest.raises(FormatError, match=r"valid: 2 documents of .* bytes, but the text has 2 of"):
        prepare(Settings(str(folder), str(copy.parent)), progress=quiet)
    edit(copy, valid_text_bytes=cache.valid_bytes, resealed=True)
    assert prepare(Settings(str(folder), str(copy.parent)), progress=quiet) == replace(cache, path=copy)


def test_a_cache_of_an_earlier_version_is_built_anew(
    cache: TokenCache, copy: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(str(folder), str(copy.parent))
    for fingerprint in (None, cache.fingerprint):  # a new run, and one that resumes
        unseal(copy)
        with pytest.raises(FormatError, match="this version reads"):
            open_cache(copy)
        assert prepare(settings, fingerprint=fingerprint, progress=quiet) == replace(cache, path=copy)
        assert "it is rebuilt from the same text" in capsys.readouterr().err
    assert (copy / "tokens.h5").read_bytes() == (cache.path / "tokens.h5").read_bytes()
    assert prepare(settings, progress=quiet) == replace(cache, path=copy)
    assert capsys.readouterr().err == ""


def test_a_run_goes_on_with_an_old_cache_whose_text_is_gone(
    cache: TokenCache, copy: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unseal(copy)
    text = Path(shutil.copytree(folder, tmp_path / "text"))
    next(text.iterdir()).write_text("changed\n" * 500)
    for path in (text, tmp_path / "gone"):
        settings = Settings(str(path), str(copy.parent))
        found = prepare(settings, fingerprint=cache.fingerprint, progress=quiet)
        assert found == replace(cache, path=copy, seal=None)
        assert "it is used as it is" in capsys.readouterr().err
    edit(copy, eos_id=cache.eos_id + 1)
    with pytest.raises(FormatError, match="but its tokenizer has"):
        prepare(settings, fingerprint=cache.fingerprint, progress=quiet)


def test_an_old_cache_that_nobody_may_replace_is_used(
    cache: TokenCache,
    copy: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    unseal(copy)
    monkeypatch.setattr("mudd_core.data.cache.folder.open_to_append", refuse)
    found = prepare(Settings(str(folder), str(copy.parent)), progress=quiet)
    assert found == replace(cache, path=copy, seal=None)
    assert "cannot write in" in capsys.readouterr().err


def test_the_name_of_a_cache_is_the_one_of_earlier_versions() -> None:
    """Check the name, because runs of earlier versions find their cache by it."""
    assert fingerprint_of("a" * 64, "bytes") == "569a59d7e19818c0"


def test_a_run_notices_another_content_under_the_same_name(tmp_path: Path) -> None:
    # Created by a version that stored no seal.
    with make(tmp_path / "old", None, "train.stop_at=5") as trainer:
        trainer.fit()
    with make(tmp_path / "old", FakeEngine(), "train.stop_at=10", data_seal="a") as trainer:
        trainer.fit()
    for other in ("b", None):
        with pytest.raises(UserError, match="with another data_seal: saved 'a', now"):
            make(tmp_path / "old", FakeEngine(), data_seal=other)


def test_commands_that_read_a_run_notice_it_too(cache: TokenCache, folder: Path, tmp_path: Path) -> None:
    base = load_config("tiny.py", ["train.steps=1", "train.seq_len=16"])
    data = replace(base.data, path=str(folder), cache_dir=str(cache.path.parent), vocab_size=300)
    with Trainer(replace(base, data=data), tmp_path / "run") as trainer:
        trainer.fit()
        config = trainer.config
    assert load_run(config, RunFolder(tmp_path / "run"))[0].cache == cache
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["data_seal"] == cache.seal
    (tmp_path / "run" / "run.json").write_text(json.dumps({**facts, "data_seal": "0" * 64}))
    with pytest.raises(UserError, match=r"is not the token cache that .* was trained with"):
        load_run(config, RunFolder(tmp_path / "run"))
