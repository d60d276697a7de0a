"""docs/differences.md: its example prints what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from launched import launched
from places import ROOT

PAGE = ROOT / "docs" / "differences.md"
BLOCK = re.compile(r"```bash\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
HASH = re.compile(r"\b[0-9a-f]{16}\b")  # of configs, which have further fields in later versions
PROGRAM = "python launch.py "


def outputs(folder: Path, block: str) -> str:
    """Type the commands of a block; return what `diff` prints."""
    printed = ""
    for line in block.replace("\\\n", " ").splitlines():
        assert line.startswith(PROGRAM)
        words = shlex.split(line.removeprefix(PROGRAM))
        done = launched(folder, *words)
        assert done.returncode in ((0, 1) if words[0] == "diff" else (0,)), done.stderr
        printed += done.stdout if words[0] == "diff" else ""
    return printed


def test_the_example_prints_what_the_page_says(tmp_path: Path) -> None:
    shutil.copy(ROOT / "LICENSE", tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == 2
    for commands, text in blocks:
        assert HASH.sub("#", outputs(tmp_path, commands)) == HASH.sub("#", text)
