"""The chat template in a cache of conversations: the one with which the examples were rendered."""

from __future__ import annotations

from pathlib import Path

from mudd_core.base.regular_files import read_bytes
from mudd_core.data.chat.kept import open_kept
from mudd_core.data.chat.templates import ChatTemplate

_TEMPLATE, _TOOL_USE = "template.jinja", "tool_use.jinja"


def template_files(template: ChatTemplate) -> dict[str, bytes]:
    """Return the files of a template for a cache folder, by name."""
    files = {_TEMPLATE: template.source.encode()}
    if template.tool_use:
        files[_TOOL_USE] = template.tool_use.encode()
    return files


def kept_template(folder: Path) -> ChatTemplate | None:
    """Return the template with which a cache was rendered; None if the folder has none."""
    if not (folder / _TEMPLATE).is_file():
        return None
    facts, of_tools = open_kept(folder).facts, folder / _TOOL_USE
    named = facts.get("variables")
    variables = {name: str(text) for name, text in named.items()} if isinstance(named, dict) else {}
    tool_use = read_bytes(of_tools).decode() if of_tools.is_file() else ""
    return ChatTemplate(
        read_bytes(folder / _TEMPLATE).decode(), str(facts.get("template")), variables, tool_use
    )
