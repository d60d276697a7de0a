"""docs/your-own.md has a command for every example; tests/python/documents/test_reader.py types the commands."""

from __future__ import annotations

import re

from places import ROOT

PAGE = (ROOT / "docs" / "your-own.md").read_text()
COMMANDS = re.findall(r"^python (launch\.py .+)$", PAGE, re.MULTILINE)


def test_every_example_is_on_the_page_and_in_a_command() -> None:
    files = {file.relative_to(ROOT).as_posix() for file in (ROOT / "examples").glob("*.py")}
    assert len(files) == 4 and files == set(re.findall(r"examples/\w+\.py", " ".join(COMMANDS)))
