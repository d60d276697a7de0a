"""docs/python.md: its blocks run from top to bottom, and return the values after `# ->`."""

from __future__ import annotations

import ast
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from places import ROOT

PAGE = ROOT / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_block(block: str, names: dict[str, Any], folder: Path) -> int:
    """Run a block as a file, with `names`, to which it adds its definitions. Return the number of compared results."""
    compared: list[str] = []

    def compare(value: object, want: str, line: str) -> None:
        assert want in (repr(value), str(value)), f"{line}: got {value!r}"
        compared.append(line)

    lines = []
    for statement in ast.parse(block).body:
        decorators = getattr(statement, "decorator_list", [])  # a class starts after its decorators
        before = [f"@{ast.get_source_segment(block, each)}" for each in decorators]
        source = "\n".join([*before, ast.get_source_segment(block, statement) or ""])
        line = block.splitlines()[(statement.end_lineno or 1) - 1]
        want = line.partition("# ->")[2].strip()
        lines.append(f"compare({source}, {want!r}, {line!r})" if want else source)
    (folder / "block.py").write_text("\n".join(lines))
    names |= runpy.run_path(str(folder / "block.py"), {**names, "compare": compare})
    return len(compared)


def test_every_block_runs_and_gives_what_it_says(
    tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_text, "my_text")
    names: dict[str, Any] = {}
    compared = sum(run_block(block, names, tmp_path) for block in BLOCKS)
    assert len(BLOCKS) == 10 and compared == PAGE.read_text().count("# ->") - 1 >= 15
    assert Path("grad_norm.svg").read_text().startswith("<svg")


def test_a_result_that_is_wrong_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="got 3"):
        run_block("1 + 2  # -> 4\n", {}, tmp_path)
