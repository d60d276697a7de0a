"""Types of the functions that accept fields of the config as keywords, one keyword for each field.

mypy checks `**fields: Unpack[...]` too, but jedi completes only keywords that a signature names.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mudd_core.cli.tune.python import tune
from mudd_core.config import Config
from mudd_core.config.families import FAMILIES
from mudd_core.config.families.family import KEY as FAMILY
from mudd_core.config.fields import FieldInfo, walk
from mudd_core.config.keywords import keyword
from mudd_core.config.own_optimizers import KEY as OPTIMIZER
from mudd_core.config.schema import Sections
from mudd_core.programs.load import load_config
from mudd_core.tools.teach.python import teach

PACKAGE = Path(__file__).resolve().parents[1] / "python" / "mudd_core"
_OPEN = (FAMILY, OPTIMIZER)  # which accept FILE.py:NAME besides their choices


@dataclass(frozen=True)
class Stub:
    """A stub file. imports: its lines. head: the parameters before the fields. result: the returned type.

    models: the fields of the model are keywords too. inside: lines of the class and the other overload of a method.
    """

    file: str
    function: Callable[..., object]
    imports: tuple[str, ...]
    head: tuple[str, ...]
    result: str
    models: bool = True
    inside: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the text of the file."""
        name = self.function.__name__
        code = [
            f"def {name}(",
            *(f"    {line}," for line in (*self.head, *parameters(self.models))),
            f") -> {self.result}:",
            textwrap.indent(f'"""{inspect.getdoc(self.function)}\n"""', "    "),
        ]
        owner = "Config" if self.inside else "mc"
        about = f'"""Types of {owner}.{name}; `./run docs` writes this file (tests/keyword_stubs.py)."""'
        if self.inside:
            code = [*self.inside, textwrap.indent("\n".join(["@overload", *code]), "    ")]
        return "\n".join([about, "", *self.imports, "", *code, ""])


STUBS = (
    Stub(
        "programs/load.pyi",
        load_config,
        (
            "import os",
            "from collections.abc import Sequence",
            "from pathlib import Path",
            "from typing import Literal",
            "",
            "from mudd_core.config import Config",
            "from mudd_core.config.replaced import Changes",
        ),
        ("path: str | Path", "overrides: Sequence[str] | Changes = ()", "*"),
        "Config",
    ),
    Stub(
        "cli/tune/python.pyi",
        tune,
        (
            "import os",
            "from pathlib import Path",
            "from typing import Literal",
            "",
            "from mudd_core.cli.tune.tuned import Tuned",
            "from mudd_core.run.opened.run import Run",
        ),
        (
            "base: str | Path | Run",
            "data: str | Path",
            "workdir: str | Path",
            "*",
            "adapter: str | Path | None = None",
            'loss: str = "tokens"',
            "progress: bool = True",
        ),
        "Tuned",
        models=False,
    ),
    Stub(
        "tools/teach/python.pyi",
        teach,
        (
            "import os",
            "from pathlib import Path",
            "from typing import Literal",
            "",
            "from mudd_core.run.opened.run import Run",
            "from mudd_core.tools.teach.written import Teacher",
        ),
        (
            "base: str | Path | Run",
            "data: str | Path",
            "to: str | Path",
            "*",
            "top: int = ...",
            "progress: bool = True",
        ),
        "Teacher",
        models=False,
    ),
    Stub(
        "config/replacing.pyi",
        Config.replace,
        (
            "import os",
            "from typing import Literal, Self, overload",
            "",
            "from mudd_core.config.replaced import Changes, Value",
            "from mudd_core.config.schema import Sections",
        ),
        ("self", "field: Changes = ...", "*"),
        "Self",
        inside=(
            "class Replacing(Sections):",
            "    @overload",
            "    def replace(self, field: str, value: Value) -> Self: ...",
        ),
    ),
)


def parameters(models: bool) -> list[str]:
    """Return `train_steps: int = ...` for each field, in the order of the sections. models: of all families too."""
    kinds: dict[str, list[str]] = {}
    for family in FAMILIES.values():
        for info in walk(Sections(model=family.config())):
            known = kinds.setdefault(info.path, [])
            known += [kind for kind in _kinds(info) if kind not in known]
    return [
        f"{keyword(path)}: {_union(found)} = ..."
        for path, found in kinds.items()
        if models or path[:6] != "model."
    ]


def _kinds(info: FieldInfo) -> list[str]:
    """Return the types of a field's values; a string in quotes is the value itself."""
    if info.kind is not str:
        return [info.kind.__name__]
    if info.choices and info.path not in _OPEN:
        return [f'"{choice}"' for choice in info.choices]
    return ["str", "os.PathLike[str]"]


def _union(kinds: list[str]) -> str:
    values = [kind for kind in kinds if kind.startswith('"')]
    types = [kind for kind in kinds if kind not in values]
    return " | ".join([*types, *([f"Literal[{', '.join(values)}]"] if values else [])])


def files() -> dict[Path, str]:
    """Return the text of each stub by its path."""
    return {PACKAGE / stub.file: stub.text() for stub in STUBS}
