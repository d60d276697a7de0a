"""`import mudd_core`: the files it reads, the names it offers, and the environment it leaves unchanged."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core

PACKAGES = str(Path(mudd_core.__file__).resolve().parents[1])
LOADED = """
import sys
before = set(sys.modules)
def loaded():
    return " ".join(sorted(m for m in set(sys.modules) - before if m.partition(".")[0] not in sys.stdlib_module_names))
import mudd_core, mudd_core.cli; print(loaded())
mudd_core.isa(); print(loaded())
mudd_core.load_config; print(any(m.partition(".")[0] != "mudd_core" for m in loaded().split()))
"""


def test_importing_reads_two_files_of_ours_and_no_other_package() -> None:
    product = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True, env=product
    )
    assert done.stdout.splitlines() == [
        "mudd_core mudd_core.cli",
        "mudd_core mudd_core._core mudd_core.cli",
        "False",  # a config works without NumPy
    ]


def test_every_public_name_resolves_and_others_do_not() -> None:
    for name in (*mudd_core._HOME, *mudd_core._MODULES):
        assert getattr(mudd_core, name) is not None and name in dir(mudd_core)
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        mudd_core.Trainr  # noqa: B018


REGISTER = """
import mudd_core as mc
mc.data.register("notes", lambda path: ["a note"])
"""


def test_a_plain_import_brings_the_function_that_registers_readers() -> None:
    subprocess.run([sys.executable, "-c", REGISTER], check=True)


WAITING = """
import os
from mudd_core import _core
print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"))
"""


def test_the_environment_is_left_as_it_was() -> None:
    def printed(**wanted: str) -> list[str]:
        names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_DISPLAY_ENV")
        env = {name: value for name, value in os.environ.items() if name not in names}
        env = {**env, "PYTHONPATH": PACKAGES, "OMP_DISPLAY_ENV": "verbose", **wanted}
        done = subprocess.run(
            [sys.executable, "-c", WAITING], env=env, capture_output=True, text=True, check=True
        )
        (count,) = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr)
        return [*done.stdout.split(), count]

    assert printed() == ["None", "None", "2000"]
    assert printed(GOMP_SPINCOUNT="77") == ["77", "None", "77"]
    assert printed(OMP_WAIT_POLICY="passive") == ["None", "passive", "0"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mc.load_", ["load_config", "load_run"]),
        ('mc.load_config("tiny.py", train_step', ["train_steps="]),
        ('mc.tune("base", "chat.jsonl", "runs/x", lora_ra', ["lora_rank="]),
        ('mc.load_run("runs/x").generate("a", max_', ["max_tokens="]),
    ],
)
def test_an_editor_and_a_notebook_complete_names_and_keywords(text: str, names: list[str]) -> None:
    jedi = pytest.importorskip("jedi")
    in_editor = jedi.Script(f"import mudd_core as mc\n{text}").complete()
    assert [found.name_with_symbols for found in in_editor] == names
    if "generate" not in text:
        in_notebook = jedi.Interpreter(text, [{"mc": mudd_core}]).complete()
        assert [found.name_with_symbols for found in in_notebook] == names


def test_the_text_of_a_signature_with_all_fields_is_short() -> None:
    assert str(inspect.signature(mudd_core.load_config)).endswith("= (), **fields: 'Value') -> 'Config'")
