"""Data and tokenizers at URLs: copied once, copied again if they changed, and readable errors."""

from __future__ import annotations

import dataclasses
import errno
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import mudd_core as mc
from mudd_core.base.errors import SaveError, UserError
from mudd_core.config import StorageConfig
from mudd_core.data import synthetic
from mudd_core.data.pipelines import prepare
from mudd_core.data.sources.access import Access
from mudd_core.run.loop.trainer import Trainer
from places import TESTS
from text_settings import quiet


@pytest.fixture(autouse=True)
def storage() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


class Broken(io.BytesIO):
    """A remote file whose connection breaks."""

    def read(self, size: int | None = -1) -> bytes:
        raise ConnectionResetError(errno.ECONNRESET, "connection reset")


def access(root: Path, **more: Any) -> Access:
    return Access(root=root, **more)


def names(folder: str) -> list[str]:
    root = Path(folder)
    return sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())


def test_a_file_a_folder_and_a_glob_are_copied(storage: Any, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt", "deep/c.txt", "d.json"):
        storage.pipe_file(f"/bucket/{name}", name.encode())
    here = access(tmp_path)
    assert Path(here.local("memory://bucket/a.txt", "[data.path]")).read_text() == "a.txt"
    assert names(here.local("memory://bucket", "[data.path]")) == ["a.txt", "b.txt", "d.json", "deep/c.txt"]
    assert names(here.local("memory://bucket/*.txt", "[data.path]")) == ["a.txt", "b.txt"]
    assert names(here.local("memory://bucket/**/*.txt", "[data.path]")) in (
        ["deep/c.txt"],
        ["a.txt", "b.txt", "deep/c.txt"],
    )
    both = here.local("memory://bucket/a.txt, /mnt/x", "[data.path]").split(",")
    assert Path(both[0]).name == "a.txt" and both[1] == "/mnt/x"


def test_only_what_changed_is_fetched_again(
    storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.pipe_file("/bucket/a.txt", b"one")
    storage.pipe_file("/bucket/b.txt", b"two")
    folder = access(tmp_path).local("memory://bucket", "[data.path]")
    opened: list[str] = []
    take = type(storage).open

    def counted(self: Any, path: str, *arguments: Any, **named: Any) -> Any:
        opened.append(path)
        return take(self, path, *arguments, **named)

    monkeypatch.setattr(type(storage), "open", counted)
    access(tmp_path).local("memory://bucket", "[data.path]")
    assert opened == []
    storage.pipe_file("/bucket/b.txt", b"three")
    storage.rm_file("/bucket/a.txt")
    opened.clear()
    assert access(tmp_path).local("memory://bucket", "[data.path]") == folder
    assert len(opened) == 1 and names(folder) == ["b.txt"]
    assert (Path(folder) / "b.txt").read_text() == "three"


def test_a_run_that_goes_on_takes_its_copy_without_asking(storage: Any, tmp_path: Path) -> None:
    storage.pipe_file("/bucket/a.txt", b"one")
    folder = access(tmp_path).local("memory://bucket", "[data.path]")
    storage.store.clear()
    assert access(tmp_path, again=True).local("memory://bucket", "[data.path]") == folder
    with pytest.raises(UserError, match="expected files at 'memory://bucket', got none"):
        access(tmp_path).local("memory://bucket", "[data.path]")


def test_a_copy_that_was_broken_off_is_made_whole(
    storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        storage.pipe_file(f"/bucket/{name}.txt", name.encode() * 9)
    take = type(storage).open

    def fails(self: Any, path: str, *arguments: Any, **named: Any) -> Any:
        if path.endswith("b.txt"):
            raise TimeoutError("too slow")
        return take(self, path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(type(storage), "open", fails)
        with pytest.raises(UserError, match=r"cannot be reached: too slow; storage\.map"):
            access(tmp_path).local("memory://bucket", "[data.path]")
    folder = access(tmp_path, again=True).local("memory://bucket", "[data.path]")
    assert names(folder) == ["a.txt", "b.txt", "c.txt"]
    assert not list(Path(folder).glob("*.part*"))


@pytest.mark.parametrize("fault", ["read", "write"])
def test_an_error_names_the_operation_that_failed(
    storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    storage.pipe_file("/bucket/a.txt", b"a" * 99)
    if fault == "read":
        monkeypatch.setattr(type(storage), "open", lambda *_, **__: Broken())
        with pytest.raises(UserError, match=r"'memory://bucket/a\.txt' cannot be read: .*connection reset"):
            access(tmp_path).local("memory://bucket/a.txt", "[data.path]")
        return
    (tmp_path / "sources").write_text("a file where the folder is needed")
    with pytest.raises(
        SaveError, match=r"'memory://bucket/a\.txt' cannot be written: (Not a directory|File exists)"
    ):
        access(tmp_path).local("memory://bucket/a.txt", "[data.path]")


def test_a_name_that_leads_out_is_refused(
    storage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = {"/bucket/../x": {"type": "file", "size": 1}}
    monkeypatch.setattr(type(storage), "find", lambda *_, **__: about)
    monkeypatch.setattr(type(storage), "isfile", lambda *_: False)
    with pytest.raises(UserError, match="cannot be copied"):
        access(tmp_path).local("memory://bucket", "[data.path]")


def test_a_text_at_a_url_gives_the_cache_of_the_text(storage: Any, folder: Path, tmp_path: Path) -> None:
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            storage.pipe_file(f"/bucket/{file.relative_to(folder)}", file.read_bytes())
    words = ["data.tokenizer=bytes", f"data.cache_dir={tmp_path / 'cache'}"]
    here = prepare(mc.load_config("tiny.py", [*words, f"data.path={folder}"]), progress=quiet)
    config = mc.load_config("tiny.py", [*words, "data.path=memory://bucket"])
    there = prepare(config, progress=quiet)
    assert there.fingerprint == here.fingerprint
    storage.store.clear()
    assert prepare(config, progress=quiet, fingerprint=here.fingerprint).seal == here.seal
    mounted = dataclasses.replace(config, storage=StorageConfig(map=f"memory://bucket={folder}"))
    assert prepare(mounted, progress=quiet).fingerprint == here.fingerprint


def test_a_tokenizer_at_a_url(storage: Any, tmp_path: Path) -> None:
    from mudd_core.data.tokenizers.bpe_training import train_bpe
    from mudd_core.data.tokenizers.source import find_tokenizer

    data = train_bpe([synthetic.text(2000, 1).encode()], 1, 300)
    storage.pipe_file("/bucket/t/tokenizer.json", data)
    for url in ("memory://bucket/t", "memory://bucket/t/tokenizer.json"):
        assert find_tokenizer(url, 0, access(tmp_path)).data == data


def test_a_vocabulary_below_that_of_a_url_is_found_before_text_is_tokenized(
    storage: Any, tmp_path: Path
) -> None:
    goldens = TESTS / "goldens" / "formats"
    storage.pipe_file("/bucket/tokenizer.json", (goldens / "tokenizer.json").read_bytes())
    (tmp_path / "a.txt").write_text(synthetic.text(4000, 1))
    words = (
        f"data.path={tmp_path}/a.txt",
        f"data.cache_dir={tmp_path}/cache",
        "data.tokenizer=memory://bucket",
    )
    with pytest.raises(
        UserError, match=r"model\.vocab_size: expected at least 300, the size of the tokenizer, got 299"
    ):
        Trainer(mc.load_config("tiny.py", [*words, "model.vocab_size=299"]))
    assert not list(tmp_path.rglob("tokens.h5"))
