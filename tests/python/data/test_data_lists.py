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


def _parts(node: ast.AST) -> list[list[ast.expr | None]]:
    """The expressions that a literal, a match, a chain of comparisons or of branches holds side by side."""
    match node:
        case ast.Dict():
            return [[*node.keys], [*node.values]]
        case ast.Tuple() | ast.List() | ast.Set():
            return [[*node.elts]]
        case ast.Match():
            return [[x.value for x in ast.walk(node) if isinstance(x, ast.MatchValue)]]
        case ast.BoolOp() | ast.If() | ast.IfExp():
            tests = node.values if isinstance(node, ast.BoolOp) else _branches(node)
            return [[side for x in tests if isinstance(x, ast.Compare) for side in (x.left, *x.comparators)]]
    return []


def _branches(node: ast.If | ast.IfExp) -> list[ast.expr]:
    """The tests of if and its elifs."""
    after = node.orelse if isinstance(node, ast.IfExp) else node.orelse[0] if len(node.orelse) == 1 else None
    return [node.test, *(_branches(after) if isinstance(after, ast.If | ast.IfExp) else [])]


def _literals(tree: ast.AST) -> Iterator[set[str]]:
    """The strings of each list of several values."""
    for node in ast.walk(tree):
        for part in _parts(node):
            yield {x.value for x in part if isinstance(x, ast.Constant) and isinstance(x.value, str)}


def _lists(code: str, names: set[str]) -> bool:
    return any(
        len((strings & names) - NOUNS) > 1 or len(strings & names) > 2
        for strings in _literals(ast.parse(code))
    )


def _files_that_list(names: set[str]) -> set[str]:
    return {
        file.relative_to(ROOT).as_posix() for file in ROOT.rglob("*.py") if _lists(file.read_text(), names)
    }


@pytest.mark.parametrize(
    "code",
    [
        "NAMES = ('pack', 'pile')",
        "NAMES = {'a': 1, 'pack': 2, 'pile': 3}",
        "NAMES = dict(a='x', b=['pack', 'pile'])",
        "NAMES = {'text', 'rows', 'blocks'}",
        "x = kind == 'pack' or kind == 'pile'",
        "x = 1 if kind == 'pack' else 2 if 'pile' == kind else 3",
        "if kind == 'pack':\n    pass\nelif kind == 'pile':\n    pass",
        "match kind:\n    case 'pack' | 'pile':\n        pass",
        "match kind:\n    case 'pack':\n        pass\n    case 'pile':\n        pass",
    ],
)
def test_a_list_in_any_form_is_seen(code: str) -> None:
    assert _lists(code, set(PIPELINES))


@pytest.mark.parametrize("code", ["x = ('text', 'rows')", "x = kind == 'pack' or 'pile'", "x = 'pack'"])
def test_one_name_and_two_nouns_are_no_list(code: str) -> None:
    assert not _lists(code, set(PIPELINES))


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
