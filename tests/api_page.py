"""The page of the Python API: every name of `mudd_core.__all__` with its signature, its docstring and an example.

The examples are in tests/data/api_examples.txt, each after a line `== NAME`; test_api_page.py runs them.
"""

from __future__ import annotations

import inspect
import re
import types
from pathlib import Path

import mudd_core as mc

EXAMPLES = Path(__file__).resolve().parent / "data" / "api_examples.txt"
_METHODS = ("Config", "Model", "Tensor", "Trainer")  # classes whose methods are listed
_WIDTH = 100
_STORY, _OPS = "python.md", "ops.md"  # in docs/
_LINKS = {"ops": f"All ops with their inputs and options: [Ops](../{_OPS})."}


def examples() -> dict[str, str]:
    """Return the example of each name."""
    parts = re.split(r"^== (\w+)\n", EXAMPLES.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (code.strip() for code in parts[2::2]), strict=True))


def text() -> str:
    """Return the page in Markdown."""
    found = examples()
    parts = [
        "# Python API: every public name",
        f"`import mudd_core as mc`. [The Python API](../{_STORY}) is an introduction. "
        "`./run docs` writes this page from the docstrings; a test runs the examples.",
    ]
    for name in sorted(mc.__all__, key=str.lower):
        value = getattr(mc, name)
        parts.append(f"## mc.{name}")
        parts += _described(name, value)
        parts += [f"```python\n{found[name]}\n```"] if name in found else []
        parts += _methods(value) if name in _METHODS else []
    return "\n\n".join(parts)


def _described(name: str, value: object) -> list[str]:
    doc = inspect.getdoc(value) or ""
    if isinstance(value, types.ModuleType):
        names = " ".join(f"`mc.{name}.{each}`" for each in value.__all__ if not each.endswith("_backward"))
        return [prose(doc), f"Names: {names}", *filter(None, [_LINKS.get(name, "")])]
    if isinstance(value, types.BuiltinFunctionType):  # its docstring starts with the signature
        return [f"```text\n{doc}\n```"]
    return [f"```python\n{signature(f'mc.{name}', value)}\n```", prose(doc)]


def _methods(cls: object) -> list[str]:
    parts = []
    for name, value in inspect.getmembers_static(cls):
        doc = inspect.getdoc(value)
        if name.startswith("_") or not doc or not isinstance(value, (types.FunctionType, property)):
            continue
        head = f".{name}" if isinstance(value, property) else signature(f".{name}", value)
        parts.append(f"```python\n{head}\n```\n\n{prose(doc)}")
    return parts


def prose(doc: str) -> str:
    """Return a docstring as Markdown that shows its characters; an indented part is code."""
    found = []
    for paragraph in re.split(r"\n\s*\n", doc):
        if paragraph.startswith("    "):
            found.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            pieces = re.split(r"(`[^`]*`)", paragraph)
            pieces[::2] = (re.sub(r"([\\*_<\[\]])", r"\\\1", piece) for piece in pieces[::2])
            found.append("".join(pieces))
    return "\n\n".join(found)


def signature(name: str, value: object) -> str:
    """Return a call with its parameters, one a line if it is long."""
    assert callable(value)
    found = inspect.signature(value)
    found = getattr(found, "short", found)  # `**fields` instead of all fields of the config
    shown = _parameters(found)
    returned = (
        ""
        if found.return_annotation in (inspect.Signature.empty, "None", None)
        else str(found.return_annotation)
    )
    ending = f" -> {returned}" if returned else ""
    line = f"{name}({', '.join(shown)}){ending}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){ending}"


def _parameters(found: inspect.Signature) -> list[str]:
    """Return the parameters as text without `self`; keyword-only parameters follow a star."""
    listed: list[str] = []
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in listed):
            listed.append("*")
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        kind = "" if each.annotation is each.empty else f": {each.annotation}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        listed.append(f"{star}{each.name}{kind}{default}")
    return listed


def _default(value: object) -> str:
    """Return the default of a parameter as text. A function is shown by name, because its address changes."""
    return value.__name__ if isinstance(value, types.FunctionType) else repr(value)
