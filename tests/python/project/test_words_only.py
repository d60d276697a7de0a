"""The check that a change alters only comments and strings (tests/words_only.py)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import prose_texts
import words_only

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

PYTHON = '"""Doc."""\n\n\ndef f(x):\n    """Doc."""\n    # why\n    return f"got {x} here", "a" "b", x + 1\n'
CPP = (
    '#include "mudd/a.h"  // for A\n#define TWICE(x) \\\n  ((x) + (x))\n'
    'int f(int n) {  // why\n  fail("a long " "message");\n  return n - -1\'000;\n}\n'
)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    for name, text in {"a.py": PYTHON, "b.cc": CPP, "README.md": "One.\n", "c.toml": "a = 1\n"}.items():
        (root / name).write_text(text)
    who = ("-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "commit.gpgsign=false")
    prose_texts.git(root, "init", "--quiet")
    prose_texts.git(root, "add", ".")
    prose_texts.git(root, *who, "commit", "--quiet", "-m", "files: add them")
    return root


def replace(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert text.count(old) == 1
    (root / name).write_text(text.replace(old, new))


def test_comments_docstrings_pages_and_white_space_may_change(repository: Path) -> None:
    replace(repository, "a.py", '    """Doc."""\n    # why\n', '    """Return it."""\n')
    replace(repository, "b.cc", "int f(int n) {  // why\n", "/* The\n reason. */\nint f(int n)\n{\n")
    replace(repository, "b.cc", "// for A", "// A")
    replace(repository, "README.md", "One", "Two")
    (repository / "CONTRIBUTING.md").write_text("New.\n")
    assert words_only.changes("HEAD", repository) == ([], [])


def test_strings_that_differ_are_listed(repository: Path) -> None:
    replace(repository, "a.py", 'f"got {x} here"', 'f"{x} came"')
    replace(repository, "b.cc", '"a long " "message"', '"a short message"')
    assert words_only.changes("HEAD", repository) == (
        ["a.py: 'got {} here' -> '{} came'", "b.cc: 'a long message' -> 'a short message'"],
        [],
    )


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a.py", "x + 1", "x + 2"),
        ("a.py", "{x} here", "{x + 1} here"),
        ("a.py", "def f(x)", "def f(x=1)"),
        ("b.cc", "n - -1'000", "n --1'000"),
        ("b.cc", "-1'000", "-1'001"),
        ("b.cc", "mudd/a.h", "mudd/b.h"),
        ("b.cc", '#include "mudd/a.h"  // for A\n#define', '// #include "mudd/a.h"\n#define'),
        ("b.cc", "  ((x) + (x))\n", "  ((x) +\n (x))\n"),
        ("c.toml", "1", "2"),
    ],
)
def test_any_other_change_is_a_fault(repository: Path, name: str, old: str, new: str) -> None:
    replace(repository, name, old, new)
    strings, faults = words_only.changes("HEAD", repository)
    assert strings == [] and len(faults) == 1 and faults[0].startswith(f"{name}: expected")


def test_new_and_deleted_files_are_faults(repository: Path) -> None:
    (repository / "new.py").write_text("")
    (repository / "b.cc").unlink()
    assert [fault.partition(":")[0] for fault in words_only.changes("HEAD", repository)[1]] == [
        "b.cc",
        "new.py",
    ]


def test_the_program_says_so(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = words_only.changes("HEAD", repository)
    monkeypatch.setattr(words_only, "changes", lambda revision: found)
    assert words_only.main(["HEAD"]) == 0
    assert capsys.readouterr().out == "words only: yes; 0 strings differ, 0 other changes\n"
    monkeypatch.setattr(words_only, "changes", lambda revision: ([], ["a.py: other"]))
    assert words_only.main(["HEAD"]) == 1 and words_only.main([]) == 2
