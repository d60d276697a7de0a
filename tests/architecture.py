"""Check that imports and includes point down through the layers, and draw the layers for docs/architecture.md.

Modules on one layer may import each other, but never in a circle, not even through imports inside functions. The
folders of one C++ layer (such as cpp/mudd/ops/linear/) do not include each other in a circle either.

A name of a C++ type in a header is defined once, so that a reader who sees the name knows the type.

    python tests/architecture.py            report every import or include that points up; exit code 1 if there is one
    python tests/architecture.py --write    draw the picture in docs/architecture.md again, as ./run docs does
    python tests/architecture.py --count    print how many modules there are and how much of them is imports

The layers of Python are in pyproject.toml (import-linter checks them too), those of C++ are below.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- python tests/architecture.py --write -->", "<!-- end of the picture -->"
CPP_LAYERS = (
    "testing",
    "bind",
    "train",
    "optim",
    "ops",
    "graph",
    "params",
    "dist",
    "kernels",
    "data",
    "h5",
    "io",
    "base",
)
LAZY = ROOT / "tests" / "lazy_imports.txt"
CPP_TYPE = re.compile(
    r"^( *)(?:template <[^\n]*>\s)?(?:class|struct|union|enum|enum class) (\w+)(?: final)?(?: : [^;{\n]*)?\s*\{",
    re.MULTILINE,
)


class Edge(NamedTuple):
    """An import or include by which a file uses another layer."""

    file: str
    user: str
    used: str


def python_layers() -> dict[str, tuple[str, ...]]:
    """Return the layers in pyproject.toml by the package that contains them, the highest first."""
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return {contract["containers"][0]: tuple(contract["layers"]) for contract in linter["contracts"]}


def _floors(layers: tuple[str, ...]) -> dict[str, int]:
    """Return the index of each layer in the list. Names in "a | b" have one index and may not use each other."""
    return {name: place for place, floor in enumerate(layers) for name in floor.split(" | ")}


def cpp_edges() -> Iterator[Edge]:
    """Yield the includes between folders of cpp/."""
    for file in sorted((ROOT / "cpp").rglob("*")):
        if file.suffix not in (".h", ".cc", ".inc"):
            continue
        name = file.relative_to(ROOT).as_posix()
        user = name.split("/")[2] if name.startswith("cpp/mudd/") else name.split("/")[1]
        yield from (Edge(name, user, used) for used in included(file.read_text()) if used != user)


def included(text: str) -> list[str]:
    """Return the layers whose headers a C++ file includes: folders of cpp/mudd/, and cpp/bind and cpp/testing."""
    return re.findall(r'#include (?:["<]mudd/|")(\w+)/', text)


def cpp_folders() -> dict[str, set[str]]:
    """Return, for each folder of cpp/, the folders whose headers its files include, at every depth."""
    root = ROOT / "cpp"
    uses: dict[str, set[str]] = {}
    for file in sorted(root.rglob("*")):
        if file.suffix in (".h", ".cc", ".inc"):
            here = file.parent.relative_to(root).as_posix()
            headers = re.findall(r'#include ["<]([\w/.-]+)[">]', file.read_text())
            found = {Path(name).parent.as_posix() for name in headers if (root / name).is_file()}
            uses.setdefault(here, set()).update(found - {here})
    return uses


def type_names(file: str, text: str) -> Iterator[tuple[str, bool]]:
    """Yield (name, True if other files can use it unqualified) for each type that a C++ file defines."""
    for indent, name in CPP_TYPE.findall(text):
        yield name, not indent and file.endswith(".h")


def repeated_types(files: Iterable[tuple[str, str]]) -> list[str]:
    """Return one line for each type in a header whose name another file also defines, even nested or local."""
    found: dict[str, dict[str, bool]] = {}
    for file, text in files:
        for name, shared in type_names(file, text):
            uses = found.setdefault(name, {})
            uses[file] = uses.get(file, False) or shared
    return [
        f"{', '.join(sorted(uses))}: each defines a type {name}; give them names that say what each is"
        for name, uses in sorted(found.items())
        if len(uses) > 1 and any(uses.values())
    ]


def cpp_files() -> Iterator[tuple[str, str]]:
    """Yield name and text of the C++ files, except those that are compiled for each ISA with separate types."""
    for file in sorted((ROOT / "cpp").rglob("*")):
        name = file.relative_to(ROOT).as_posix()
        if file.suffix in (".h", ".cc") and not name.endswith("-inl.h") and "/base/simd/" not in name:
            yield name, file.read_text()


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:  # ruff refuses relative imports (TID252)
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _python_files() -> tuple[tuple[str, ast.Module], ...]:
    files = sorted((ROOT / "python" / "mudd_core").rglob("*.py"))
    return tuple((file.relative_to(ROOT).as_posix(), ast.parse(file.read_text())) for file in files)


class Import(NamedTuple):
    """An import statement. typed: below `if TYPE_CHECKING`. functions: those around it, the outermost first."""

    node: ast.Import | ast.ImportFrom
    typed: bool
    functions: tuple[str, ...]


def _statements(node: ast.AST, typed: bool, functions: tuple[str, ...]) -> Iterator[Import]:
    """Yield the imports below a node. Expressions have none, so only blocks of statements are visited."""
    checking = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        functions = (*functions, node.name)
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield Import(child, typed or (checking and block == "body"), functions)
            else:
                yield from _statements(child, typed or (checking and block == "body"), functions)


@cache
def _python_imports() -> tuple[tuple[str, tuple[Import, ...]], ...]:
    return tuple((name, tuple(_statements(tree, False, ()))) for name, tree in _python_files())


def python_edges(container: str = "mudd_core") -> Iterator[Edge]:
    """Yield the imports between packages inside `container`, including those inside functions."""
    layers, depth = _floors(python_layers()[container]), container.count(".") + 1
    for name, imports in _python_imports():
        place = name.removeprefix("python/").removesuffix(".py").split("/")
        if ".".join(place[:depth]) != container:
            continue
        user = place[depth]
        for found in imports:
            for module in _imported(found.node):
                parts = module.split(".")
                inside = ".".join(parts[:depth]) == container and len(parts) > depth
                if inside and parts[depth] in layers and parts[depth] != user:
                    yield Edge(name, user, parts[depth])


def module_imports() -> dict[str, set[str]]:
    """Return the modules of the package that each module imports at run time, including those inside functions."""
    modules = {
        name.removeprefix("python/").removesuffix(".py").replace("/", ".").removesuffix(".__init__"): imports
        for name, imports in _python_imports()
    }
    uses: dict[str, set[str]] = {}
    for module, imports in modules.items():
        names = (name for one in imports if not one.typed for name in _imported(one.node))
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        uses[module] = (found & modules.keys()) - {module}
    return uses


def circles(uses: Mapping[str, set[str]]) -> list[str]:
    """Return one line for each circle of imports or includes, starting at its first module."""
    done: set[str] = set()
    found: list[str] = []

    def visit(module: str, path: tuple[str, ...]) -> None:
        if module in path:
            found.append(" uses ".join((*path[path.index(module) :], module)) + ": a circle")
        elif module not in done:
            for used in sorted(uses.get(module, ())):
                visit(used, (*path, module))
            done.add(module)

    for module in sorted(uses):
        visit(module, ())
    return found


def upward(edges: Iterable[Edge], layers: tuple[str, ...]) -> list[str]:
    """Return one line for each edge that points up or sideways, or that touches a folder without a layer."""
    found, floors = [], _floors(layers)
    for file, user, used in sorted(set(edges)):
        if user.startswith("__"):  # the package itself re-exports from every layer
            continue
        if user not in floors or used not in floors:
            found.append(f"{file}: {user if user not in floors else used} is in no layer")
        elif floors[used] < floors[user]:
            found.append(f"{file}: {user} uses {used}, a layer above it")
        elif floors[used] == floors[user]:
            found.append(f"{file}: {user} uses {used}, a layer beside it")
    return found


def is_of_program(place: str, node: ast.Import | ast.ImportFrom) -> bool:
    """Return True if the __init__ of a program's folder imports a module of this program."""
    # The methods of a Program import what they need (docs/adding.md), so a new program needs no line in the list.
    folder, _, file = place.rpartition(".")
    inside = folder.startswith("programs.") and file == "__init__"
    return inside and all(name.startswith(f"mudd_core.{folder}.") for name in _imported(node))


def is_of_gone_program(line: str) -> bool:
    """Return True if a line of the list names a program whose folder is missing, as in a copy without it."""
    found = re.match(r"programs\.(\w+)\.", line)
    return found is not None and not (ROOT / "python" / "mudd_core" / "programs" / found[1]).exists()


def lazy_imports() -> list[str]:
    """Return `module function: import` for each import inside a function that needs a line, sorted."""
    found = set()
    for name, imports in _python_imports():
        place = name.removeprefix("python/mudd_core/").removesuffix(".py").replace("/", ".")
        for one in imports:
            if not is_of_program(place, one.node):
                found.update(f"{place} {function}: {ast.unparse(one.node)}" for function in one.functions)
    return sorted(found)


def listed_imports() -> list[str]:
    """Return the lines of tests/lazy_imports.txt without its comments."""
    return [line for line in LAZY.read_text().splitlines() if line and not line.startswith("#")]


def counts() -> dict[str, str]:
    """Return counts of the Python modules by name, for comparison before and after a change of the layout."""
    files, uses = _python_files(), module_imports()
    used = Counter(module for others in uses.values() for module in others)
    lines = sum(len((ROOT / name).read_text().splitlines()) for name, _ in files)
    imports = (
        node for _, tree in files for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)
    )
    of_imports = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)
    folders = Counter(Path(name).parent.name for name, _ in files if not name.endswith("__init__.py"))
    return {
        "modules": str(len(files)),
        "lines": str(lines),
        "lines of imports outside functions": f"{of_imports}, {of_imports / lines:.1%}",
        "modules that one module imports": str(sum(used[module] == 1 for module in uses)),
        "loose modules of base/": str(folders["base"]),
        "loose modules of data/": str(folders["data"]),
    }


def _direct(edges: Iterable[Edge]) -> list[tuple[str, str]]:
    """Return the transitive reduction: the edges that no longer path implies. The picture stays readable."""
    uses: dict[str, set[str]] = {}
    for _, user, used in edges:
        if not user.startswith("__"):
            uses.setdefault(user, set()).add(used)

    def reaches(start: str, goal: str) -> bool:
        return any(step == goal or reaches(step, goal) for step in uses.get(start, ()))

    return sorted(
        (user, used)
        for user, below in uses.items()
        for used in below
        if not any(reaches(other, used) for other in below - {used})
    )


def picture() -> str:
    """Return Mermaid graphs of the packages of mudd_core, of the packages inside large ones, and of cpp/."""
    parts = []
    packages = [(container, python_edges(container)) for container in python_layers()]
    for title, edges in (*packages, ("cpp", cpp_edges())):
        lines = [f"  {user}[{user}] --> {used}[{used}]" for user, used in _direct(edges)]
        parts.append("\n".join(["```mermaid", "flowchart TD", f"  %% {title}", *lines, "```"]))
    return "\n\n".join(parts)


def drawn() -> str:
    """Return the picture in docs/architecture.md."""
    return PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()


def faults() -> list[str]:
    """Return one line for each fault of the layers."""
    found = upward(cpp_edges(), CPP_LAYERS)
    for container, layers in python_layers().items():
        found += upward(python_edges(container), layers)
    found += circles(module_imports()) + circles(cpp_folders())
    found += repeated_types(cpp_files())
    now = set(lazy_imports())
    listed = {line for line in listed_imports() if not is_of_gone_program(line)}
    found += [
        f"{line}: an import inside a function that tests/lazy_imports.txt does not list"
        for line in now - listed
    ]
    found += [f"{line}: listed in tests/lazy_imports.txt, but not in the code" for line in listed - now]
    return found


def redrawn(page: str) -> str:
    """Return the text of the page with a picture of the current code."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{picture()}\n{END}{rest.split(END)[1]}"


def main() -> int:
    """Check, draw or count."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(redrawn(PAGE.read_text()))
        return 0
    if sys.argv[1:] == ["--count"]:
        print("\n".join(f"{name}: {figure}" for name, figure in counts().items()))
        return 0
    found = faults()
    print("\n".join(found) if found else "layers: every import and include points down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
