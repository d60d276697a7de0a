"""The config files that there are, each with one line that says what it is."""

from __future__ import annotations

import ast

from mudd_core.base.regular_files import read_text
from mudd_core.config.load import config_files


class ConfigList(dict[str, str]):
    """Name of each config to the line that says what it is; printed as a table."""

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        return "\n".join(f"{name:<{width}}  {line}" for name, line in self.items())


def list_configs() -> ConfigList:
    """Name to one line of each config that mc.load_config and mc.Trainer take by its name: "gpt2/tiny.py".

    The line is the first one of the file's docstring; no file is run.
    """
    return ConfigList({name: _first_line(read_text(file)) for name, file in config_files().items()})


def _first_line(source: str) -> str:
    """The first line of a module's docstring; empty where it has none or is no Python."""
    try:
        found = ast.get_docstring(ast.parse(source)) or ""
    except SyntaxError:
        return ""
    return found.partition("\n")[0]
