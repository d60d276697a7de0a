"""Run the harness on loaded tasks, and show its results."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TypedDict

from lm_eval import evaluator
from lm_eval.utils import handle_non_serializable

from mudd_core.base.types import JsonObject
from mudd_core.lm_eval.model import Model
from mudd_core.tools.evaluate.tasks import Item

_STDERR = "_stderr"
_BOOTSTRAP = 1000  # samples for the standard errors of metrics that are no means


class Samples(TypedDict):
    """The documents of a task: all, and those that were evaluated."""

    original: int
    effective: int


Result = TypedDict(
    "Result", {"results": dict[str, dict[str, float | str]], "n-samples": dict[str, Samples]}, total=False
)


def evaluated(
    model: Model,
    tasks: list[Item],
    *,
    limit: int | None,
    few_shot: int | None,
    chat: bool,
    system: str | None,
) -> Result:
    """Return the results of the tasks. The metrics have the harness's names."""
    # The harness's own function prints an error of git outside of a repository.
    evaluator.get_git_commit_hash = _commit
    found: Result = evaluator.simple_evaluate(
        model=model,
        tasks=tasks,
        num_fewshot=few_shot,
        limit=limit,
        bootstrap_iters=_BOOTSTRAP,
        log_samples=False,
        apply_chat_template=chat,
        system_instruction=system,
    )
    return found


def _commit() -> str:
    """Return the commit of the current folder; empty outside of a repository, or without git."""
    with contextlib.suppress(OSError):
        command = ["git", "describe", "--always"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def table_of(result: Result) -> list[list[str]]:
    """Return the rows of a table: task, metric, value, standard error, documents."""
    rows = [["task", "metric", "value", "stderr", "documents"]]
    for task, values in result["results"].items():
        samples = result.get("n-samples", {}).get(task)
        for key, value in values.items():
            name, _, kind = key.partition(",")
            if not kind or name.endswith(_STDERR):
                continue
            error = values.get(f"{name}{_STDERR},{kind}", "")
            shown = f"{name} ({kind})" if kind != "none" else name
            count = "" if samples is None else f"{samples['effective']:,}"
            rows.append([task, shown, _number(value), _number(error), count])
    return rows


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4f}" if abs(value) < 1000 else f"{value:.4g}"


def as_json(result: Result) -> JsonObject:
    """Return the results as JSON: the harness's own result, without the documents."""
    found: JsonObject = json.loads(json.dumps(result, default=handle_non_serializable))
    return found
