"""Codes of errors: every class has one, the table has no dead entry, and --explain-error prints an entry."""

from __future__ import annotations

import ast
import functools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from mudd_core.base import errors
from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.packages import needed, pages
from mudd_core.cli import main
from mudd_core.cli.error_codes.kind import FULL_MEMORY, INTERNAL, OWN_FILE
from mudd_core.cli.error_codes.lookup import explained, kind_of, offer
from mudd_core.cli.error_codes.table import KINDS
from mudd_core.config import Config
from mudd_core.config.saved import OtherConfigError
from mudd_core.data.sources.listing import NoFilesError
from mudd_core.run.loop.lost_source import SourceLostError
from typed_terminal import TypedTerminal

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "python" / "mudd_core"
LAUNCH = [sys.executable, str(ROOT / "launch.py")]


@functools.cache
def bases() -> dict[str, str]:
    """Return the first base of each class of an error in the sources."""
    return dict(_classes())


def _classes() -> Iterator[tuple[str, str]]:
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.bases:
                yield node.name, ast.unparse(node.bases[0]).rpartition(".")[2]


def test_every_class_that_a_user_sees_has_a_code_of_its_exit_code() -> None:
    known, found = bases(), 0
    own = {kind.error: kind for kind in KINDS}
    for name in known:
        chain = [name]
        while chain[-1] in known:
            chain.append(known[chain[-1]])
        if "ShownInOneLine" not in chain:
            continue
        found += 1
        kind = next((own[one] for one in chain if one in own), None)
        assert kind is not None, name
        codes = [
            getattr(errors, one).exit_code
            for one in chain
            if hasattr(getattr(errors, one, None), "exit_code")
        ]
        assert kind.exit_code == (codes or [2])[0], name
    assert found >= 12


def test_the_table_is_consistent() -> None:
    codes = [kind.code for kind in KINDS]
    assert codes == sorted(set(codes))
    assert {kind.error for kind in KINDS} - bases().keys() == {OWN_FILE, FULL_MEMORY, INTERNAL}
    assert [kind.code for kind in KINDS if kind.error == "UserError" and not kind.places] == ["MC200"]
    places = [place for kind in KINDS for place in kind.places]
    assert len(places) == len(set(places))
    for kind in KINDS:
        assert re.fullmatch(r"MC\d{3}", kind.code)
        assert kind.code.startswith(f"MC{kind.exit_code}")
        assert (pages() / kind.page).exists(), kind.page
        assert kind.happened.endswith(".")
        assert kind.mend.endswith(".")


def test_every_place_of_the_table_is_in_a_message_and_every_section_in_the_table() -> None:
    text = "\n".join(file.read_text(encoding="utf-8") for file in SOURCES.rglob("*.py"))
    grammars = set(re.findall(r'"(\w+)"', text))
    for kind in KINDS:
        for place in kind.places:
            assert re.search(rf"\[{re.escape(place)}[\].]", text) or place in grammars, place
    for one in fields(Config):
        if hasattr(one.default_factory, "__dataclass_fields__"):
            assert kind_of(UserError(f"[{one.name}.x] wrong")).code != "MC200", one.name


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("[arguments] 'x' is no command"), "MC201"),
        (UserError("[data.tokenizer] expected a file"), "MC204"),
        (UserError("[data convert] --to: exists"), "MC204"),
        (UserError("[eval.batch_size] expected 1"), "MC202"),
        (UserError("[workdir] runs/none holds no run"), "MC207"),
        (UserError("[Trainer] config: expected one, got none"), "MC200"),
        (UserError("no place"), "MC200"),
        (NoFilesError("[data.path] no files"), "MC205"),
        (OtherConfigError([]), "MC209"),
        (FormatError("a", 0, "torn"), "MC650"),
        (SaveError("[save] a: full"), "MC740"),
        (SourceLostError("gone"), "MC741"),
        (OSError(28, "No space left on device"), "MC740"),
        (MemoryError(), "MC213"),
        (KeyError("x"), "MC700"),
    ],
)
def test_the_kind_of_an_error(error: BaseException, code: str) -> None:
    assert kind_of(error).code == code


def test_a_missing_package_has_a_kind_of_its_own() -> None:
    with pytest.raises(UserError, match="install it") as caught:
        needed("no_such_package", "[data] x", "to read x")
    assert kind_of(caught.value).code == "MC206"


def test_a_message_with_a_command_offers_no_other_one() -> None:
    assert offer(UserError("[arguments] x; type: launch.py y")) == ""
    assert offer(UserError("[workdir] x")).endswith(" --explain-error=MC207")


@pytest.mark.parametrize(
    "words", [["--explain-error=MC204"], ["--explain-error", "mc204"], ["train", "--explain_error=MC204"]]
)
def test_an_entry_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    told = capsys.readouterr().out
    assert told.startswith("MC204: The data cannot be used (exit code 2)\nMeaning: ")
    assert "\nRemedy: " in told
    assert "\nKind: UserError, [data], " in told
    assert told.rstrip().endswith("data.md")
    assert max(map(len, told.splitlines())) <= 100


def test_a_remedy_has_the_program_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/mudd"])
    assert "`mudd COMMAND --help`" in explained("MC200") and "launch.py" not in explained("MC200")


def test_all_codes_and_the_codes_of_an_exit_code_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--explain-error"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [kind.code for kind in KINDS]
    assert len(listed) <= 40
    assert main(["--explain-error=74"]) == 0
    assert re.findall(r"^MC\d+", capsys.readouterr().out, re.MULTILINE) == ["MC740", "MC741"]


@pytest.mark.parametrize(("word", "near"), [("MC2004", "MC200"), ("MC999", ""), ("data", "")])
def test_an_unknown_code_names_the_nearest(word: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--explain-error={word}"]) == 2
    told = capsys.readouterr().err
    assert f"--explain-error: expected a code such as MC200, got '{word}'" in told
    assert (f"did you mean '{near}'?" in told) == bool(near)
    assert told.rstrip().endswith("launch.py --explain-error")


def test_only_a_terminal_shows_the_line_and_its_command_works(tmp_path: Path) -> None:
    words = [*LAUNCH, "report", "runs/none"]
    piped = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "more:" not in piped.stderr
    shown = TypedTerminal(words, os.environ, tmp_path)
    told = shown.wait(lambda text: "more: " in text and text.endswith("\n"))
    assert shown.process.wait() == 2
    first, last = told.replace("\r", "").splitlines()
    assert first == piped.stderr.rstrip()
    line = shlex.split(last.removeprefix("more: "))
    assert line[-1] == "--explain-error=MC207"
    done = subprocess.run([*LAUNCH, line[-1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.rstrip() == explained("MC207")


@pytest.mark.parametrize("words", [["--explain-error", "MC204", "extra"], ["--explain-error=MC204", "MC205"]])
def test_further_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "expected no argument after the code, got '" in printed.err and not printed.out
    assert printed.err.endswith("--explain-error=MC204\n")
