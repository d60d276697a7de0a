"""`import mudd_core`: the files it reads, the names it offers, and the environment it leaves unchanged."""

from __future__ import annotations

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


COMPLETED = """
import jedi
for text in ("mc.load_", 'mc.load_config("tiny.py", train_step', 'mc.tune("base", "chat.jsonl", "runs/x", lora_ra'):
    print([found.name_with_symbols for found in jedi.Script("import mudd_core as mc\\n" + text).complete()])
import mudd_core  # the objects of a notebook
print([found.name_with_symbols for found in jedi.Interpreter(text, [{"mc": mudd_core}]).complete()])
print(mudd_core.load_config.__signature__)
"""


def test_an_editor_completes_names_and_keywords_of_an_editable_install() -> None:
    pytest.importorskip("jedi")
    product = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", COMPLETED], capture_output=True, text=True, check=True, env=product
    )
    names, fields, tuned, in_notebook, shown = done.stdout.splitlines()
    assert names == "['load_config', 'load_run']"
    assert fields == "['train_steps=']" and tuned == in_notebook == "['lora_rank=']"
    assert shown.endswith("= (), **fields: 'Value') -> 'Config'")
