"""Whether the data of a config are there: what a start would find out, without fetching or reading them."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.base.storage import file_system, is_url, mapped, unreachable
from mudd_core.config import Config
from mudd_core.data.listing import data_files, list_files

IDS_ALONE = ("pile", "megatron", "features", "synthetic")  # pipelines that need no tokenizer


def check_sources(config: Config) -> None:
    """UserError where data.path or data.eval_path names nothing, or a URL that cannot be reached."""
    data = config.data
    for name in ("path", "eval_path"):
        path = mapped(getattr(data, name), config.storage.map)
        if is_url(path):
            _look_at(path, f"[data.{name}]")
        elif path and name == "path" and data.pipeline == "text":
            list_files(path)
        elif path:
            data_files(path, f"data.{name}")


def _look_at(url: str, argument: str) -> None:
    system, path = file_system(url, argument)
    try:
        there = bool(system.glob(path)) if "*" in path else system.exists(path)
    except Exception as error:
        raise unreachable(url, argument, error) from error
    if not there:
        raise UserError(f"{argument} expected a file or a folder, got '{url}', which does not exist")
