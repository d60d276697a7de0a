"""Pipelines, protocols and formats have one list each, and every name has its module."""

from importlib import import_module

import pytest

from listed_names import ROOT, files_that_list, lists
from mudd_core.config.data import FORMATS
from mudd_core.config.pipelines import PIPELINES, PROTOCOLS
from mudd_core.data import formats, pipelines

# MaxText's dataset types with the pipeline of each: the names are MaxText's.
OF_OTHERS = {"programs/maxtext/keys.py"}
# Names in both lists that are also common nouns: two of them together need not be pipelines.
NOUNS = {"text", "rows", "blocks", "features"}


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
    assert lists(code, set(PIPELINES), NOUNS)


@pytest.mark.parametrize("code", ["x = ('text', 'rows')", "x = kind == 'pack' or 'pile'", "x = 'pack'"])
def test_one_name_and_two_nouns_are_no_list(code: str) -> None:
    assert not lists(code, set(PIPELINES), NOUNS)


def test_no_file_lists_pipelines_again() -> None:
    assert files_that_list(set(PIPELINES), NOUNS) - OF_OTHERS == set()


def test_no_file_lists_protocols_again() -> None:
    assert files_that_list(set(PROTOCOLS), NOUNS) - OF_OTHERS == set()


def test_no_file_lists_formats_again() -> None:
    writers = {
        "tools/convert/command.py",
        "tools/convert/items.py",
    }  # formats that can be written, with the formats that they are converted from
    assert files_that_list(set(FORMATS), NOUNS) - writers == {"config/data.py"}


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
