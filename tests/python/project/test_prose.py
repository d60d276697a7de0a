"""The count of prose finds each entry of docs/glossary.md, and nothing else (tests/prose.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import prose
import prose_texts

# For each entry of the glossary, a sentence that uses it once and a better one, which uses none.
SAMPLES = {
    "begin": ("Training will begin at step 3.", "Training starts at step 3."),
    "behind": ("The byte behind the end.", "The byte after the end."),
    "beside": ("Time beside the baseline.", "Time compared with the baseline."),
    "that of": ("Its dtype is\nthat of the input.", "It has the dtype of the input."),
    "where it": ("Padded where it is shorter.", "Padded if it is shorter."),
    "What": ("What a step returns.", "The result of a step."),
    "of its own": ("It has a buffer of its own.", "It has a separate buffer."),
    "ours": ("Names like ours.", "Names like those in mudd_core."),
    "ask for": ("They ask for memory.", "They request memory."),
    "so many": ("Save after so many steps.", "Save every N steps."),
    "stand": ("The ids stand in a file.", "The ids are in a file."),
    "go on": ("The run will go on.", "The run continues."),
    "out of a": ("Read ids out of a file.", "Read ids from a file."),
    "share out": ("They share out the experts.", "They distribute the experts."),
    "anew": ("The logits are computed anew.", "The logits are recomputed."),
    "a text": ("Expected a text.", "Expected a string."),
    "that count": ("Targets that count.", "Targets that contribute to the loss."),
    "word": ("An unknown word on the command line.", "An unknown argument."),
    "product": ("One product per layer.", "One matmul per layer."),
    "figure": ("The figures of a step.", "The metrics of a step."),
    "row": ("A row of the batch.", "A sequence of the batch."),
    "number": ("The number of a step.", "The count of steps."),
    "take": ("They take a path.", "They accept a path."),
    "give": ("They give a path.", "They return a path."),
    "hold": ("The file will hold ids.", "The file will contain ids."),
    "make": ("They make a folder.", "They create a folder."),
    "cut": ("The batch is cut.", "The batch is sharded."),
    "share": ("The share of peak.", "The percentage of peak."),
    "member": ("A member of the file.", "A key of the file."),
    "window": ("A window of tokens.", "A sequence of tokens."),
}
ENTRIES = prose.habits(prose.GLOSSARY.read_text(encoding="utf-8"))
BOOK = prose.PhraseBook(ENTRIES)


def names(text: str) -> list[str]:
    return [habit.name for habit, _ in BOOK.find(prose.plain(text))]


def test_the_glossary_has_the_entries_of_the_samples() -> None:
    assert sorted(entry.name for entry in ENTRIES) == sorted(SAMPLES)
    assert {entry.table for entry in ENTRIES} == {"replace", "choose"}


@pytest.mark.parametrize("name", SAMPLES)
def test_each_entry_is_found_in_its_sample(name: str) -> None:
    before, after = SAMPLES[name]
    assert (names(before), names(after)) == ([name], [])


def test_code_spans_links_and_ranges_are_no_prose() -> None:
    assert names("Elements [begin, end) of `rows`, see [it](README.md#behind) and <out of a>.") == []


def test_comments_docstrings_and_messages_of_python() -> None:
    source = (
        '"""Read a file.\n\nbehind"""\n'
        'x = "a key"  # first\n'
        "# One sentence\n# of two lines.\n"
        'print(f"expected {x}, got "\n      f"nothing at all")\n'
    )
    found = sorted(prose_texts.python_prose(source), key=lambda one: one.first)
    assert [(one.kind, one.first, one.last, one.text) for one in found] == [
        ("comment", 1, 3, "Read a file.\n\nbehind"),
        ("comment", 4, 4, "first"),
        ("comment", 5, 6, "One sentence\nof two lines."),
        ("message", 7, 8, "expected {}, got nothing at all"),
    ]


def test_comments_and_messages_of_cpp() -> None:
    source = (
        '#include "mudd/base/a.h"  // here\n// One\n// two.\n'
        'int n = 1\'000;  // a\nchar c = \'"\';  // b\nfail("got // no value", R"(a raw "b" c)");\n'
    )
    found = sorted(prose_texts.cpp_prose(source), key=lambda one: one.first)
    assert [(one.kind, one.first, one.text) for one in found] == [
        ("comment", 1, "here"),
        ("comment", 2, "One\ntwo."),
        ("comment", 4, "a"),
        ("comment", 5, "b"),
        ("message", 6, "got // no value"),
        ("message", 6, 'a raw "b" c'),
    ]


def test_paragraphs_of_pages() -> None:
    page = "# Title\ntwo\nlines\n\n```sh\nbehind\n```\n- item\n- item\n| cell |\n"
    found = [(one.first, one.text) for one in prose_texts.page_prose(page)]
    assert found == [(1, "# Title\ntwo\nlines"), (8, "- item"), (9, "- item"), (10, "| cell |")]


def test_a_long_sentence_is_a_hit() -> None:
    text = "Short. " + "word " * 26 + "end. Short."
    (hit,) = (
        hit
        for hit in prose.hits_of("README.md", prose_texts.Prose("page", 3, 3, text), BOOK)
        if not hit.habit
    )
    assert "long sentence" in str(hit) and str(hit).startswith("README.md:3:")


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "commit.gpgsign=false")
    prose_texts.git(root, *who, *arguments)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with two hits in a page and the ratchet that allows them."""
    root = tmp_path / "repository"
    root.mkdir()
    (root / "README.md").write_text("One behind.\n\nTwo behind.\n")
    monkeypatch.setattr(prose, "ROOT", root)
    monkeypatch.setattr(prose, "RATCHET", root / "ratchet.toml")
    git(root, "init", "--quiet")
    prose.RATCHET.write_text(prose.written(prose.count([], BOOK).limits()))
    git(root, "add", ".")
    git(root, "commit", "--quiet", "-m", "pages: begin")
    return root


def test_a_rise_fails_and_names_the_changed_line(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counted = prose.count([], BOOK)
    assert counted.limits()["page"] == {"replace": 2, "long": 0} and prose.check(counted, BOOK) == 0
    (repository / "README.md").write_text("One behind.\n\nTwo behind.\n\nThree behind.\n")
    (repository / "new.py").write_text("# Here.\n")
    assert capsys.readouterr().out == ""
    assert prose.check(prose.count([], BOOK), BOOK) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "README.md:5: [behind: after] Three behind."
    assert lines[1] == "prose: phrases to replace in pages: expected at most 2, got 3"


def test_write_lowers_the_ratchet_and_never_raises_it(repository: Path) -> None:
    (repository / "README.md").write_text("One after.\n\nTwo behind.\n")
    prose.lower(prose.count([], BOOK).limits())
    (repository / "README.md").write_text("One behind.\n\nTwo behind.\n")
    prose.lower(prose.count([], BOOK).limits())
    assert "replace = 1\n" in prose.RATCHET.read_text()


def test_a_name_that_the_glossary_lacks_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prose.main(["--lines", "nothing"])
    assert "--lines: expected one of" in capsys.readouterr().err
