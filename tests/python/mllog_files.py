"""The log of the benchmark in the folder of a run, as its events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mudd_core.programs.moe.mllog import TOKEN
from mudd_core.run.store.run_folder import BENCHMARK_LOG


def mllog_events(folder: Path) -> list[dict[str, Any]]:
    """Read the events in their order."""
    text = (folder / BENCHMARK_LOG).read_text(encoding="utf-8")
    return [json.loads(line.removeprefix(TOKEN)) for line in text.splitlines()]
