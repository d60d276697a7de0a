"""The names of `import mudd_core` are the same in its table, in dir(), in help() and for type checkers."""

from __future__ import annotations

import ast
import pydoc
import subprocess
import sys

import mudd_core as mc
from places import ROOT

SOURCE = ROOT / "python" / "mudd_core" / "__init__.py"


def test_dir_has_public_names_only() -> None:
    for code in ("", "mc.Model, mc.ops;"):  # before and after modules are loaded
        command = f"import mudd_core as mc; {code} print(*dir(mc))"
        done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == {*mc._HOME, *mc._MODULES, "__version__"}
    assert mc.__all__ == sorted({*mc._HOME, *mc._MODULES})


def test_type_checkers_read_an_import_of_each_name() -> None:
    blocks = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    imported = [alias for node in blocks[0].body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.name == alias.asname for alias in imported)  # `as` re-exports
    assert sorted(alias.name for alias in imported) == mc.__all__


def test_help_names_the_classes() -> None:
    text = pydoc.plain(pydoc.render_doc(mc))
    classes = text.partition("\nCLASSES\n")[2].partition("\n    class ")[0]
    for name in ("Config", "Model", "Tensor", "Trainer", "GPT2Config"):
        assert f".{name}" in classes
