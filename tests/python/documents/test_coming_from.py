"""The commands that the pages in docs/coming-from propose: a shell can read them, and this program accepts them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import documents
from document_sizes import MIXTRAL
from key_tables import PAGES
from mudd_core.cli import main
from mudd_core.cli.argv import parse
from mudd_core.cli.requested import request_of

ROOT = PAGES.parents[1]
# Replaces a program: writes its name and its arguments to a file, followed by an empty line.
NOTE = '#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@" "" >>"$NOTES"\n'


def blocks(page: str) -> str:
    """Return the shell lines of a page without the generated block of the document's commands."""
    own = re.sub(r"<!-- commands: .*?<!-- end of the commands -->", "", page, flags=re.DOTALL)
    lines = "".join(re.findall(r"```sh\n(.*?)```", own, re.DOTALL)).splitlines()
    return "\n".join(
        line for line in lines if "..." not in line and not line.startswith(("git clone", "pip ", ". "))
    )


def typed(page: str, folder: Path) -> list[list[str]]:
    """Return the commands of a page as a shell splits them, each with its program first."""
    (folder / "bin").mkdir()
    for name in ("launch.py", "bin/python"):
        (folder / name).write_text(NOTE)
        (folder / name).chmod(0o755)
    for name in ("docs", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "NOTES": str(folder / "notes"),
        "RUN_NAME": "first",
        "DATASET_PATH": "data",
    }
    subprocess.run(["sh", "-eu", "-c", blocks(page)], cwd=folder, env=environment, check=True)
    commands = [text.split("\n") for text in (folder / "notes").read_text().split("\n\n")]
    return [words for words in commands if words != [""]]


def ours(words: list[str]) -> list[str] | None:
    """Return the arguments after launch.py; None if the program is not part of mudd_core."""
    if words[:2] == ["python", "launch.py"]:
        words = words[1:]
    if words[:2] == ["python", "-m"]:
        package, _, command = words[2].partition(".")
        if package != "mudd_core":
            return None
        return [*{"": [], "train": ["jax_lm.train"]}.get(command, [command]), *words[3:]]
    return words[1:] if words[0] == "launch.py" else None


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_its_commands_are_taken(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.json").write_text(json.dumps(MIXTRAL | {"max_position_embeddings": 128}))
    (tmp_path / "tokenizer").mkdir()
    found = [ours(words) for words in typed(page.read_text(encoding="utf-8"), tmp_path)]
    commands = [words for words in found if words is not None]
    assert len(commands) >= 3
    for words in commands:
        if parse(words).tool:
            assert main(words) == 0, capsys.readouterr().err
        else:
            request_of(parse(words))


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_it_has_what_every_page_has(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"^## (.*)", text, re.MULTILINE)
    assert {"Every command of the document", "Ten minutes"} <= set(heads)
    assert (
        "hat differs" in text
        and f"(../reference/keys/{page.name})" in text
        and "`./run setup" in text.replace("&& ./", "&& `./")
    )
    for theirs, here in documents.others(page.stem):
        assert here and theirs.replace("|", r"\|") in text


def test_launch_py_starts_as_the_pages_type_it(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-s", "launch.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert listed.stdout.startswith("100755 ")
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", "./launch.py --help"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "launch.py" in done.stdout
