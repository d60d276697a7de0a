"""Imports and includes point down, and docs/architecture.md has the current picture of them."""

from __future__ import annotations

import ast

import architecture
from architecture import Edge


def test_every_import_and_include_points_down() -> None:
    assert architecture.faults() == []


def test_the_picture_is_drawn_from_the_imports() -> None:
    assert architecture.drawn() == architecture.picture(), "run python tests/architecture.py --write"


def test_an_edge_that_points_up_or_nowhere_is_a_fault() -> None:
    layers = ("train", "ops", "base")
    edges = [Edge("a.h", "train", "base"), Edge("b.h", "base", "ops"), Edge("c.h", "ops", "misc")]
    assert architecture.upward(edges, layers) == [
        "b.h: base uses ops, a layer above it",
        "c.h: misc is in no layer",
    ]
    beside = [Edge("d.py", "build", "report"), Edge("e.py", "build", "store")]
    assert architecture.upward(beside, ("build | report", "store")) == [
        "d.py: build uses report, a layer beside it"
    ]
    assert len(list(architecture.python_edges("mudd_core.run"))) > 60
    assert len(list(architecture.cpp_edges())) > 300 and len(list(architecture.python_edges())) > 150


def test_a_program_imports_its_own_modules_inside_methods() -> None:
    def needs_a_line(code: str, place: str = "programs.jax_lm.__init__") -> bool:
        (node,) = ast.parse(code).body
        assert isinstance(node, ast.Import | ast.ImportFrom)
        return not architecture.is_of_program(place, node)

    own = "from mudd_core.programs.jax_lm.keys import ROWS"
    assert not needs_a_line(own) and needs_a_line(own, "programs.jax_lm.grammar")
    assert needs_a_line(own, "programs.moe.__init__") and needs_a_line(own, "programs.__init__")
    assert needs_a_line("from mudd_core.programs.detect import resolve")


def test_a_line_of_a_program_counts_while_its_folder_exists() -> None:
    assert architecture.is_of_gone_program("programs.none.style step: from x import y")
    assert not architecture.is_of_gone_program("programs.jax_lm.style step: from x import y")
    assert not architecture.is_of_gone_program("cli.none step: from x import y")


def test_headers_beside_the_core_are_in_layers() -> None:
    names = ('"testing/record.h"', "<mudd/base/isa.h>", '"mudd/io/files.h"', '"text.h"', "<sys/mman.h>")
    found = architecture.included("".join(f"#include {name}\n" for name in names))
    assert found == ["testing", "base", "io"]
    core = [Edge("cpp/mudd/io/a.cc", "io", used) for used in found[:2]]
    assert architecture.upward(core, architecture.CPP_LAYERS) == [
        "cpp/mudd/io/a.cc: io uses testing, a layer above it"
    ]


def test_modules_of_one_layer_import_each_other_in_no_circle() -> None:
    uses = architecture.module_imports()
    assert len(uses) > 350 and architecture.circles(uses) == []
    lock, trace = "mudd_core.run.store.lease", "mudd_core.run.report.trace"
    assert lock in uses["mudd_core.run.store.folder_lock"] and trace in uses["mudd_core.run.loop.trainer"]
    assert architecture.circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) == [
        "a uses b uses c uses a: a circle"
    ]


def test_folders_of_one_layer_include_each_other_in_no_circle() -> None:
    uses = architecture.cpp_folders()
    assert "mudd/ops/activation" in uses["mudd/ops/linear"] and architecture.circles(uses) == []
    uses["mudd/ops/activation"].add("mudd/ops/linear")
    assert architecture.circles(uses) == [
        "mudd/ops/activation uses mudd/ops/linear uses mudd/ops/activation: a circle"
    ]


def test_a_type_of_a_header_has_a_name_of_its_own() -> None:
    header = "// the struct Piece {\nstruct Piece {\n  struct Part {\n  };\n};\nclass Later;\n"
    files = [
        ("a.h", header),
        ("b.h", "template <class T>\nclass Other final : public T {\n  enum class Part {\n"),
    ]
    assert architecture.repeated_types(files) == []  # nested types of different types differ
    again = ("c.cc", "namespace {\nenum class Piece : uint8_t { all };\n")
    (line,) = architecture.repeated_types([*files, again])
    assert line.startswith("a.h, c.cc: each defines a type Piece")
    assert (
        sum(1 for file, text in architecture.cpp_files() for _ in architecture.type_names(file, text)) > 300
    )


def test_base_and_data_keep_few_loose_modules() -> None:
    """Put a new module into a folder of its topic; python tests/architecture.py --count prints the counts."""
    found = architecture.counts()
    assert int(found["loose modules of base/"]) <= 17
    assert int(found["loose modules of data/"]) <= 6
    assert int(found["modules"]) > 500
