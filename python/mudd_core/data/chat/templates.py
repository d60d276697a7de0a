"""Find the chat template of a run: the template in its tokenizer's folder, `chatml`, or a file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.paths import IMPORTED
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import Json, JsonObject
from mudd_core.config.data import DataConfig
from mudd_core.data.tokenizers.folder import CONFIG
from mudd_core.data.tokenizers.special_tokens import read_config
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, Tokenizer

_CHATML = (
    "{%- for turn in messages %}{{ '<|im_start|>' + turn['role'] + '\\n' + turn['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
BUILT_IN = {"chatml": _CHATML}
TEMPLATE = "chat_template.jinja"
TEMPLATES = "additional_chat_templates"  # a folder next to that file, with one file for each further template
TOOL_USE = "tool_use"  # the template that transformers uses if a conversation has tools
_LONGEST = 1 << 20  # bytes


@dataclass(frozen=True)
class ChatTemplate:
    """A Jinja template.

    variables: the special tokens that the template may use, by name. name: the origin of the template.

    tool_use: the template for conversations with tools; empty if it is the same.
    """

    source: str
    name: str
    variables: dict[str, str] = field(default_factory=dict)
    tool_use: str = ""

    def identity(self) -> JsonObject:
        """Return all values that determine the rendered text."""
        of_tools = {"tool_use": _sha256(self.tool_use)} if self.tool_use else {}
        return {"template": _sha256(self.source), "variables": {**self.variables}, **of_tools}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def find_template(settings: DataConfig, tokenizer: Tokenizer | None) -> ChatTemplate:
    """Return the template of a config. Raise UserError if there is none, FormatError if its file is damaged.

    tokenizer: for the names of BOS and EOS, if its folder has no settings; None: without them.
    """
    if (found := template_or_none(settings, tokenizer)) is not None:
        return found
    raise UserError(
        f"[data.template] data.pipeline=chat needs a chat template, and {settings.tokenizer} has "
        f"none ({TEMPLATE}, or chat_template in {CONFIG}); set data.template=chatml, or "
        "data.template=FILE, a Jinja template"
    )


def template_or_none(settings: DataConfig, tokenizer: Tokenizer | None) -> ChatTemplate | None:
    """Return the template of a config, as find_template does; None if the tokenizer's folder has none."""
    folders = _folders(settings.tokenizer)
    configs = [read_config(read_bytes(file), str(file)) for file in _files(folders, CONFIG)]
    variables = _variables(configs) if configs else _usual(tokenizer)
    if settings.template in BUILT_IN:
        return ChatTemplate(BUILT_IN[settings.template], settings.template, variables)
    if settings.template != "auto":
        return ChatTemplate(_text(Path(settings.template).expanduser()), settings.template, variables)
    for file in _files(folders, TEMPLATE):
        of_tools = file.parent / TEMPLATES / f"{TOOL_USE}.jinja"
        return ChatTemplate(_text(file), str(file), variables, _text(of_tools) if of_tools.is_file() else "")
    for config, file in zip(configs, _files(folders, CONFIG), strict=True):
        found = _of_config(config.get("chat_template"), file)
        if (source := found.get("default")) is not None:
            return ChatTemplate(source, str(file), variables, found.get(TOOL_USE, ""))
    return None


def _folders(tokenizer: str) -> list[Path]:
    path = Path(tokenizer).expanduser()
    folder = path if path.is_dir() else path.parent
    return [folder, folder / IMPORTED] if path.exists() else []


def _files(folders: list[Path], name: str) -> list[Path]:
    return [folder / name for folder in folders if (folder / name).is_file()]


def _text(file: Path) -> str:
    try:
        data = read_bytes(file)
    except OSError as error:
        raise UserError(
            f"[data.template] expected auto, {', '.join(BUILT_IN)} or a file, got {str(file)!r}: {error.strerror}"
        ) from None
    if len(data) > _LONGEST:
        raise FormatError(str(file), _LONGEST, f"expected a chat template of at most {_LONGEST:,} bytes")
    try:
        return data.decode("utf-8-sig")  # Windows editors write a byte order mark first
    except UnicodeDecodeError as error:
        raise FormatError(str(file), error.start, "not UTF-8") from None


def _of_config(value: Json, file: Path) -> dict[str, str]:
    """Return the templates in a value of tokenizer_config.json by name. A single string is `default`."""
    if value is None:
        return {}
    if isinstance(value, list):
        value = {str(one.get("name")): one.get("template") for one in value if isinstance(one, dict)}
    named = value if isinstance(value, dict) else {"default": value}
    if "default" not in named:
        raise UserError(
            f"[data.template] expected a template named default in {file}, got {', '.join(named) or 'none'}; write "
            "the one to train with to a file, and set data.template=FILE"
        )
    texts = {}
    for name in ("default", TOOL_USE):
        text = named.get(name)
        if isinstance(text, str) and len(text.encode("utf-8", "surrogatepass")) > _LONGEST:
            raise FormatError(str(file), _LONGEST, f"expected a chat template of at most {_LONGEST:,} bytes")
        if isinstance(text, str):
            texts[name] = text
        elif name in named:
            raise FormatError(str(file), 0, f"chat_template: expected a string, got {json.dumps(text)[:80]}")
    return texts


def _variables(configs: list[JsonObject]) -> dict[str, str]:
    """Return the strings of bos_token and similar tokens."""
    found: dict[str, str] = {}
    for config in configs:
        for name, value in config.items():
            token = value.get("content") if isinstance(value, dict) else value
            if name.endswith("_token") and isinstance(token, str):
                found.setdefault(name, token)
    return found


def _usual(tokenizer: Tokenizer | None) -> dict[str, str]:
    """Return the names of BOS and EOS for a tokenizer without a config."""
    if not isinstance(tokenizer, JsonTokenizer):
        return {}
    names, ids = tokenizer.names(), {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {name: names[number] for name, number in ids.items() if number is not None}
