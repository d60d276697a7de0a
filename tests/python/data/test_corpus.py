"""From text to documents: the files that are text, document boundaries, held-out documents, wrong input."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from mudd_core.base.errors import UserError
from mudd_core.data import prepare, synthetic
from mudd_core.data.sources import corpus
from text_settings import Settings, quiet


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
        "site-packages/x.py",
        "dist-packages/x.py",
        "test/x.py",
        "pkg/tests/x.py",
        "pkg/idle_test/x.py",
        "encodings/x.py",
        "pydoc_data/x.py",
        "__pycache__/x.py",
        "config-3.11-x/x.py",
        "_sysconfigdata_x.py",
        "data.txt",
        "x.pyc",
    )
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
    for name in ["B.py", "b.py", "conf.py", "pkg/a.py", "pkg/testing/t.py"]:  # in byte order
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


# Wrong input


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
