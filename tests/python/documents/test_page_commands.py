"""The test of each command in the pages, and the options that a sentence names.

test_generated_docs.py compares the table of all commands, and test_reader.py runs them.
"""

from __future__ import annotations

import re

import pytest

from mudd_core.cli import main
from mudd_core.cli.names import COMMANDS, TOOLS
from mudd_core.programs.program import rows_of
from page_command_rules import ELSEWHERE, NAMED, REASONS, RUN, SMALLER, answer
from page_commands import commands, of_page

FOUND = commands()
NAMES = {typed.text for typed in FOUND if answer(typed) == NAMED}


def test_every_command_is_executed_named_or_has_one_of_the_reasons() -> None:
    answers = [answer(typed) for typed in FOUND]
    assert set(answers) <= {RUN, NAMED, *REASONS, *(f"{RUN} + {rule.does}" for rule in SMALLER)}
    assert {rule.does for rule in ELSEWHERE} | {"original", "theirs"} == set(REASONS)
    executed = [one for one in answers if one.startswith(RUN)]
    assert len(executed) > 90 and answers.count(RUN) > 60


def test_every_rule_fits_a_command() -> None:
    for rule in (*SMALLER, *ELSEWHERE):
        assert any(re.match(rule.pattern, typed.text) for typed in FOUND), rule


def test_a_page_gives_its_blocks_and_spans_in_order() -> None:
    page = (
        "Type `python launch.py --plan` or\n`./run\nlint`.\n\n"
        "```sh\ncd a && \\\n    ./run test   # tests\n# a comment\n```\n\n"
        "    python launch.py data\n\nBut `import h5py` and `launch.py` are none.\n"
    )
    found = [(typed.form, typed.text) for typed in of_page("page", page)]
    blocks = [("block", "cd a && ./run test"), ("block", "python launch.py data")]
    assert found == [("span", "python launch.py --plan"), ("span", "./run lint"), *blocks]


@pytest.mark.parametrize("line", sorted(NAMES))
def test_a_sentence_names_a_command_and_options_that_exist(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check options with --help and fields with --help=all, which lists them by section."""
    words = re.sub(r"^(python3? )?(\./)?(launch\.py|-m mudd_core\.?) ?", "", line).split()
    known = [*COMMANDS, *TOOLS, "mup check", "mup transfer", "clm"]
    name = max((name for name in known if name.split() == words[: len(name.split())]), key=len, default="")
    for asked in ([*name.split(), "--help"], ["--help"], ["--help=all"]):
        assert main(asked) == 0
    helped = capsys.readouterr().out
    flags = rows_of("jax_lm") if name == "train" and "-m" in line else {}
    for option in re.findall(r"--([a-z][\w.-]*)", line):
        known_field = f"\n  {option} = " in helped or option.startswith("model.")
        assert f"--{option}" in helped or known_field or option.replace("-", "_") in flags, option
