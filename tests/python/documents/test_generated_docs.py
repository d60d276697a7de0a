"""The generated pages agree with the code; `./run docs` updates them."""

from __future__ import annotations

from pathlib import Path

import pytest

import generated_docs
import message_page
import reference_pages
import same_bits


def test_every_page_is_what_run_docs_writes() -> None:
    pages = generated_docs.pages()
    assert len(pages) == 31
    assert {path for path in pages if path.parent.name == "reference"} >= set(
        reference_pages.FOLDER.glob("*.md")
    )
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: ./run docs writes it anew"


def test_a_page_that_is_stale_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = next(generated_docs.key_tables.KEYS.glob("jax*.md"))
    whole, stale = page.read_text(encoding="utf-8"), tmp_path / page.name
    stale.write_text(whole.replace("| `batch_size` | `16` |", "| `batch_size` | `17` |"), encoding="utf-8")
    monkeypatch.setattr(generated_docs.key_tables, "KEYS", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert stale.read_text(encoding="utf-8") != whole
    generated_docs.main()
    assert capsys.readouterr().out == f"written: {page.name}\n" and stale.read_text(encoding="utf-8") == whole


def test_the_table_of_hashes_has_the_bits_of_the_goldens() -> None:
    rows, committed = same_bits.rows(), same_bits.committed()
    assert rows and set(committed) == set(same_bits.FAMILIES)
    for row in rows:
        assert all(hashes == committed for hashes in row["hashes"].values()), row["cpu"]


def test_every_message_of_the_page_is_one_that_a_test_compares() -> None:
    listed = [one for messages in message_page.sections().values() for one in messages]
    assert len(listed) >= 30 and {one.file for one in listed} == set(message_page.FILES)
    for one in listed:
        assert one.title and one.mend, one.case
        text = (message_page.DATA / message_page.FILES[one.file]).read_text(encoding="utf-8")
        assert f"{message_page.message(one)}\n" in f"{text}\n", one.case
    with pytest.raises(KeyError, match="no such case"):
        message_page.message(listed[0]._replace(case="no such case"))
