"""docs/inside.md: its Python runs unchanged, and its table has the names of all families, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT
from small_models import CASES, make

PAGE = ROOT / "docs" / "inside.md"


def listed() -> dict[str, str]:
    """Return the shapes in the table, by name; the names of block i start with `blocks.<i>.`."""
    found = {}
    for names, shape in re.findall(r"^\| (`.+?) \| (.+?) \| .+ \|$", PAGE.read_text(), re.M):
        first, *more = re.findall(r"`(.+?)`", names)
        for name in [first, *(first.rpartition(".")[0] + "." + other for other in more)]:
            found[name] = shape
    return found


def test_the_python_of_the_page_runs(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    done = subprocess.run([sys.executable, "-W", "error", str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "blocks.0.attn.weights [B, 4, T, T]" in done.stdout
    assert "blocks.0.mix.weights float32[2, 33, 4, 2]" in done.stdout


def test_the_table_has_the_names_of_all_families() -> None:
    found = {re.sub(r"\.\d+\.", ".<i>.", name) for case in CASES for name in make(case)[0].names()}
    assert found == set(listed())


@pytest.mark.parametrize("case", CASES)
def test_shapes_of_the_table_have_as_many_axes(case: str) -> None:
    table = listed()
    for name, shape in make(case)[0].names().items():
        given = table[re.sub(r"\.\d+\.", ".<i>.", name)]
        if given.startswith(("int32", "[")) and " or " not in given:
            assert given.count(",") == shape.count(","), name
            assert given.startswith("int32") == shape.startswith("int32")
