"""yml files that are not configs: the error is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudd_core.base.bounded_yaml import MOST_BYTES
from mudd_core.cli import main
from yaml_bombs import BOMB, NODES

MAXTEXT = "base_config: base_v2.yml\nmodel_name: MUDDLlama2Medium\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, NODES),
        ('steps: !!int ""', "x.yml, line 3: expected a value of !!int"),
        ("steps: .inf", "[maxtext] steps: expected a finite number, got inf"),
        ("steps: 1" + "0" * 400, "64 bits"),
        ("base_config: a**b.yml", "[maxtext] no yml file 'a**b.yml'"),
        (f"base_config: {'n' * 5000}.yml", "names of at most 255 bytes"),
        ("x: " + "y" * MOST_BYTES, f"at most {MOST_BYTES} bytes"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_bad_yml_file_is_2_in_one_line(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yml").write_text(MAXTEXT + text)
    assert main(["x.yml", "run_name=r", "dataset_path=d", "--plan"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line and len(line) < 400
