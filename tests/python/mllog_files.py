"""The benchmark's log in the folder of a run, as events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mudd_core.programs.moe.mllog import TOKEN
from mudd_core.run.store.run_folder import BENCHMARK_LOG


def mllog_events(folder: Path) -> list[dict[str, Any]]:
    """Return the events in order."""
    text = (folder / BENCHMARK_LOG).read_text(encoding="utf-8")
    return [json.loads(line.removeprefix(TOKEN)) for line in text.splitlines()]
