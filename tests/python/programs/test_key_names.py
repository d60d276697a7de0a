"""Names of the original programs: all of them are in the table of keys, and in no other module that a command uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import documents
import mudd_core
from mudd_core.cli.names import OPTIONS
from mudd_core.config.pipelines import PIPELINES
from mudd_core.config.schema import fields_of_all
from mudd_core.programs.program import rows_of, table

PACKAGE = Path(mudd_core.__file__).resolve().parent
# Folders that a command uses. Other modules read such names in files: settings of weights (interop), logs.
ON_THE_WAY = ("config", "programs", "cli")
# In programs: the tables of keys, and modules with names of weights' settings, of logs and of files.
OF_TABLES = (
    "keys*.py",
    "mesh_sizes.py",
    "environment.py",
    "*style.py",
    "weights.py",
    "muddformer_*.py",
    "tokenformer_*.py",
    "maxtext/model.py",
    "mllog*.py",
    "statistics.py",
    "preprocess/*.py",
)
WITH_DASHES = ("jax_lm", "jax_lm_preprocess", "mu_transformer")  # --batch-size is batch_size
# Hydra's own names: an option, and a key of .hydra/hydra.yaml.
OF_HYDRA = {"--config-path", "config-path", "output_dir"}
# Keys of a pipeline's cursor, which only the registry of pipelines may name.
AFTER_ERRORS = {
    "cli/foreign_values.py",
    "config/foreign.py",
}  # imported to explain a mistake, never for a correct command
OF_CURSORS = {
    "config/pipelines.py": {member for spec in PIPELINES.values() for member in spec.cursor_members}
}


def foreign_names() -> set[str]:
    """Return keys of the table that this program itself does not use as an option or as a part of a field."""
    ours = {option.lstrip("-").replace("-", "_") for option in OPTIONS} | set(rows_of("environment"))
    for info in fields_of_all():
        ours |= {info.path, *info.path.split("."), *info.flags}
    names = {row.name for row in table()} | {
        row.name.replace("_", "-") for row in table() if row.grammar in WITH_DASHES
    }
    return {name for name in names if name.replace("-", "_") not in ours}


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module with their lines, without docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    said = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in said:
            yield node.lineno, node.value


def names_in(source: str, foreign: set[str]) -> list[str]:
    """Return the table's names in a module: whole strings, and parts of messages that are not ordinary words."""
    found = []
    for line, text in texts_of(source):
        words = {word.rstrip(".-") for word in re.findall(r"[A-Za-z_][\w.-]*", text)}
        spelt = {word for word in words if re.search(r"[a-z0-9][_.-][a-z0-9]", word)}
        found += [f"{line}: {name}" for name in sorted(({text} | spelt) & foreign - OF_HYDRA)]
    return found


def modules() -> list[Path]:
    left_out = {PACKAGE / name for name in AFTER_ERRORS}
    left_out |= {path for pattern in OF_TABLES for path in (PACKAGE / "programs").rglob(pattern)}
    return [path for part in ON_THE_WAY for path in (PACKAGE / part).rglob("*.py") if path not in left_out]


def test_no_module_on_the_way_of_a_command_has_a_name_of_the_table() -> None:
    foreign, seen = foreign_names(), modules()
    assert len(foreign) > 150 and len(seen) > 60
    found = {}
    for path in seen:
        name = path.relative_to(PACKAGE).as_posix()
        found[name] = names_in(path.read_text(encoding="utf-8"), foreign - OF_CURSORS.get(name, set()))
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "code",
    [
        'x = values["run_name"]',
        'f"[maxtext] run_name={x}: no"',
        'x = "--model-config-name"',
        '("wd", 1)',
        'x = "give model.config_path."',
    ],
)
def test_a_name_is_found(code: str) -> None:
    assert names_in(code, foreign_names())


@pytest.mark.parametrize(
    "code", ['"train.steps"', '"""run_name"""', '"the model"', "run_name = 1", '"--mode"']
)
def test_words_of_ours_and_documentation_are_none(code: str) -> None:
    assert not names_in(code, foreign_names())


@pytest.mark.parametrize("page", ["mu_transformer", "jax_lm"])
def test_the_names_and_defaults_of_the_page_are_those_of_the_table(page: str) -> None:
    lines = (documents.FOLDER / f"{page}_keys.txt").read_text().splitlines()
    grammar, found = page, dict[str, set[str]]()
    for word in " ".join(line for line in lines if line[0] != "#").split():
        if word.endswith(":"):
            grammar = word[:-1]
            continue
        name, _, default = word.partition("=")
        row = rows_of(grammar)[name]
        assert default == ("" if row.default is None else str(row.default)), name
        found.setdefault(grammar, set()).add(name)
    assert found == {grammar: set(rows_of(grammar)) for grammar in found}
