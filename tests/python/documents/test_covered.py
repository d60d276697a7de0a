"""Every item of the originals names existing tests and a command with names that the program knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import covered
from key_tables import PAGES
from mudd_core.programs.program import rows_of

GRAMMARS = {
    "muddformer": "maxtext",
    "tokenformer": "maxtext",
    "mu_transformer": "mu_transformer",
    "mlperf_moe": "hydra",
}
# The program's names in a command, without mudd_core's options, fields (which have a dot) and variables.
NAME = {
    "maxtext": re.compile(r"(?:^| )([a-z]\w*)="),
    "mu_transformer": re.compile(r"--config\.(\w+)="),
    "hydra": re.compile(r"(?:^| )([a-z]\w*)="),
}
WRONG = {"slot_nun", "n_layr", "key"}  # misspelled names in items about errors, and a placeholder


@pytest.mark.parametrize("program", covered.programs())
def test_named_tests_exist(program: str) -> None:
    items = covered.items(program)
    assert len({item.name for item in items}) == len(items) > 10
    for item in items:
        assert (item.state == "pending") == (not item.tests), item
        assert covered.missing(item) == [], item


@pytest.mark.parametrize("program", GRAMMARS)
def test_names_in_commands_are_keys_of_the_program(program: str) -> None:
    grammar = GRAMMARS[program]
    typed = {name for item in covered.items(program) for name in NAME[grammar].findall(item.command)}
    assert len(typed) > 5 and typed - WRONG <= rows_of(grammar).keys()


def test_every_page_has_its_table() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} | {"card"} == set(covered.programs())
    for page in PAGES.glob("*.md"):
        assert f"<!-- covered: {page.stem} -->\n{covered.table(page.stem)}\n" in page.read_text(
            encoding="utf-8"
        )


def test_a_wrong_line_or_test_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "FOLDER", tmp_path)
    (tmp_path / "some.txt").write_text(
        "=== items\n# a comment\nA | x \\| y | test_covered.py::test_named_tests_exist test_covered.py::test_none\n"
        "B | z | refused test_no_file.py::test_none\nC | w | pending\n"
    )
    first, second, third = covered.items("some")
    assert (first.command, first.state, second.state) == (r"x \| y", "held", "refused")
    assert covered.missing(first) == ["test_covered.py::test_none"]
    assert covered.missing(second) == ["test_no_file.py::test_none"]
    assert covered.missing(third) == [] and covered.pending() == ["some: C"]
    (tmp_path / "some.txt").write_text("=== items\nA | x\n")
    with pytest.raises(ValueError, match=r"expected ITEM \| COMMAND \| TESTS, got 'A \| x'"):
        covered.items("some")
    (tmp_path / "some.txt").write_text("A | x | y\n")
    with pytest.raises(ValueError, match=r"some.txt: expected a line '=== items', found none"):
        covered.items("some")
