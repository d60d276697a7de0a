"""Pipelines, protocols and formats have one list each, and every name has its module."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import mudd_core
from mudd_core.config.data import FORMATS
from mudd_core.config.pipelines import PIPELINES
from mudd_core.config.protocols import PROTOCOLS
from mudd_core.data import formats, pipelines

ROOT = Path(mudd_core.__file__).parent
# MaxText's dataset types and the pipeline that each becomes: names of another program.
OF_OTHERS = {"config/keys/maxtext.py"}
# Words of both lists that are nouns of data too: two of them side by side say nothing about pipelines.
NOUNS = {"text", "rows", "blocks", "features"}


def _literals(tree: ast.AST) -> Iterator[set[str]]:
    """The strings of each literal of several values."""
    for node in ast.walk(tree):
        parts = {
            ast.Dict: lambda one: [one.keys, one.values],
            ast.Tuple: lambda one: [one.elts],
            ast.List: lambda one: [one.elts],
            ast.Set: lambda one: [one.elts],
        }.get(type(node), lambda one: [])(node)
        for part in parts:
            yield {x.value for x in part if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def _files_that_list(names: set[str]) -> set[str]:
    found = set()
    for file in ROOT.rglob("*.py"):
        for strings in _literals(ast.parse(file.read_text())):
            if len((strings & names) - NOUNS) > 1 or len(strings & names) > 2:
                found.add(file.relative_to(ROOT).as_posix())
    return found


def test_no_file_lists_pipelines_again() -> None:
    assert _files_that_list(set(PIPELINES)) - OF_OTHERS == set()


def test_no_file_lists_protocols_again() -> None:
    assert _files_that_list(set(PROTOCOLS)) - OF_OTHERS == set()


def test_no_file_lists_formats_again() -> None:
    writers = {
        "tools/convert/command.py",
        "tools/convert/items.py",
    }  # which formats can be written, and from which
    assert _files_that_list(set(FORMATS)) - writers == {"config/data.py"}


@pytest.mark.parametrize("name", PIPELINES)
def test_each_pipeline_is_one_object_of_its_module(name: str) -> None:
    found = pipelines.pipeline_named(name)
    assert found is not None
    assert found.name == name == PIPELINES[name].name
    assert PIPELINES[name].protocol in PROTOCOLS
    assert PIPELINES[name].earlier_protocol in ("", *PROTOCOLS)


def test_each_module_with_a_pipeline_is_listed() -> None:
    folder = ROOT / "data" / "pipelines"
    modules = [
        import_module(f"mudd_core.data.pipelines.{file.stem}") for file in sorted(folder.glob("[!_]*.py"))
    ]
    assert {one.PIPELINE.name for one in modules if hasattr(one, "PIPELINE")} == set(PIPELINES)


def test_each_module_with_a_format_is_listed() -> None:
    folder = ROOT / "data" / "formats"
    modules = [
        import_module(f"mudd_core.data.formats.{file.stem}") for file in sorted(folder.glob("[!_]*.py"))
    ]
    assert {one.FORMAT.name: one.FORMAT for one in modules if hasattr(one, "FORMAT")} == formats.FORMATS
    assert tuple(formats.FORMATS) == FORMATS
