"""Files that are no UTF-8 text: --plan and a start refuse them alike, with the byte and the command that converts."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from mudd_core.cli import main

TEXT = "".join(f"line {i} of a text in which the café is open\n" for i in range(4000))
PLAIN = TEXT.replace("é", "e").encode()
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "latin1": (
        lambda: PLAIN + "café\n".encode("latin-1") + PLAIN,
        "iconv -f LATIN1 -t UTF-8 {file} > {file}.utf8",
    ),
    "utf16": (lambda: TEXT.encode("utf-16"), "it is UTF-16; `iconv -f UTF-16 -t UTF-8 {file} > {file}.utf8`"),
    "gzip": (lambda: gzip.compress(TEXT.encode()), "compressed by gzip; `gunzip -c {file} > {file}.utf8`"),
    "binary": (lambda: b"\x7fELF\0\0" + bytes(range(256)) * 9, "it has NUL bytes, so it is no text"),
}
FAULTS = {"latin1": len(PLAIN) + 3, "utf16": 0, "gzip": 1, "binary": 6 + 128}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("plan", [["--plan"], []])
def test_bytes_that_are_no_text_are_refused_with_the_cure(
    kind: str, plan: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(CASES[kind][0]())
    words = [f"data.path={file}", f"data.cache_dir={tmp_path / 'cache'}", f"--workdir={tmp_path / 'run'}"]
    assert main(["--config=tiny.py", *words, *plan]) == 2
    told = capsys.readouterr().err
    assert f"expected UTF-8 text, got other bytes in '{file}' at byte {FAULTS[kind]}: " in told
    assert CASES[kind][1].format(file=file) in told


@pytest.mark.parametrize("pipeline", ["pack", "rows", "blocks"])
def test_a_plan_reads_the_first_document_of_every_pipeline(
    pipeline: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(TEXT.encode("latin-1")))
    words = [f"data.path={file}", f"data.pipeline={pipeline}", f"--workdir={tmp_path / 'run'}", "--plan"]
    assert main(["--config=tiny.py", *words]) == 65
    assert f"{file} at byte 0: line 1 is not JSON" in capsys.readouterr().err
