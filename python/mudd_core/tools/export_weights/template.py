"""The trained chat template and end-of-turn token in the tokenizer's files of an export."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.types import Json, JsonObject
from mudd_core.config import Config
from mudd_core.data.chat.templates import TEMPLATE, TEMPLATES, TOOL_USE, ChatTemplate
from mudd_core.data.chat.turn_end import turn_end
from mudd_core.data.tokenizers.files import name_of
from mudd_core.data.tokenizers.folder import CONFIG
from mudd_core.data.tokenizers.tokenizer import Tokenizer
from mudd_core.run.build.run_tokenizer import run_template
from mudd_core.run.store.run_folder import RunFolder

_GENERATION = "generation_config.json"
_MAP = "special_tokens_map.json"


@dataclass(frozen=True)
class Trained:
    """The template of a run. end, end_name: id and name of the end-of-turn token; None and empty without one."""

    template: ChatTemplate
    end: int | None = None
    end_name: str = ""


def trained_template(config: Config, run: RunFolder, tokenizer: Tokenizer) -> Trained | None:
    """Return the chat template that a run was trained with; None if there is none."""
    template = run_template(config, run, tokenizer)
    if template is None:
        return None
    end = turn_end(template, tokenizer)
    token = None if end is None else end.token
    return Trained(template, token, "" if token is None else name_of(tokenizer, token))


def with_trained(files: Mapping[str, bytes], trained: Trained | None, eos_id: int) -> dict[str, bytes]:
    """Return the tokenizer's files with the trained template and end-of-turn token.

    If the files already have both, they stay byte for byte. eos_id: the EOS of the tokenizer in the files.
    """
    found = dict(files)
    if trained is None or CONFIG not in found:
        return found
    is_same = _source(found) == trained.template.source
    generation = _object(found.get(_GENERATION, b"{}"))
    named = generation.get("eos_token_id", eos_id)
    ends = named if isinstance(named, list) else [eos_id if named is None else named]
    if is_same and (trained.end is None or trained.end in (eos_id, *ends)):
        return found
    if not is_same:
        _take_template(found, trained.template)
    if trained.end is None:
        return found
    for name in (CONFIG, _MAP):
        if name in found:
            found[name] = _text({**_object(found[name]), "eos_token": trained.end_name})
    others = [number for number in ends if number != trained.end]
    eos: Json = [trained.end, *others] if others else trained.end
    found[_GENERATION] = _text({**generation, "eos_token_id": eos})
    return found


def _take_template(files: dict[str, bytes], template: ChatTemplate) -> None:
    """Replace every template in the files by this one."""
    for name in [one for one in files if one == "chat_template.json" or one.startswith(f"{TEMPLATES}/")]:
        del files[name]
    config = _object(files[CONFIG])
    if config.pop("chat_template", None) is not None:
        files[CONFIG] = _text(config)
    files[TEMPLATE] = template.source.encode()
    if template.tool_use:
        files[f"{TEMPLATES}/{TOOL_USE}.jinja"] = template.tool_use.encode()


def _source(files: Mapping[str, bytes]) -> str | None:
    """Return the template in a tokenizer's files that transformers would use."""
    return templates_in(files).get("default")


def templates_in(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the chat templates in a tokenizer's files by name; `default` is the usual one."""
    if TEMPLATE in files:
        more = {Path(name).stem: data for name, data in files.items() if name.startswith(f"{TEMPLATES}/")}
        found = {"default": files[TEMPLATE], **more}
        return {name: data.decode("utf-8-sig", "replace") for name, data in found.items()}
    value = _object(files.get(CONFIG, b"{}")).get("chat_template")
    if isinstance(value, list):
        value = {str(one.get("name")): one.get("template") for one in value if isinstance(one, dict)}
    named = value if isinstance(value, dict) else {"default": value}
    return {name: text for name, text in named.items() if isinstance(text, str)}


def _object(data: bytes) -> JsonObject:
    """Return the object in a JSON file of the tokenizer; empty if the file is something else."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _text(members: JsonObject) -> bytes:
    return (json.dumps(members, indent=2, ensure_ascii=False) + "\n").encode()
