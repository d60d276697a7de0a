"""The command of MaxText that evaluates weights which it names: only_eval=True load_parameters_path=PATH."""

from __future__ import annotations

from mudd_core.base.errors import UserError
from mudd_core.cli.commands import beside
from mudd_core.cli.request import Request
from mudd_core.config import Config
from mudd_core.run import signals
from mudd_core.run.start_evaluation import evaluate_start


def evaluate_named(request: Request, config: Config) -> int:
    """Print the loss of the weights that the config starts from; the work directory gets the tags."""
    for name in ("--split", "--step"):
        if name in request.options:
            raise UserError(
                f"[arguments] {name}: expected a run to read, got load_parameters_path; leave one of them out"
            )
    result = evaluate_start(
        config,
        request.run_place,
        lambda text: print(text, flush=True),
        fields={} if request.resolved is None else request.resolved.fields,
        stop=lambda: signals.stop_reason(None) is not None,
    )
    if result is None:
        print("stopped; the evaluation was dropped")
        return 75
    print(
        f"step {result.step}: validation loss {result.val_loss:.6f}, {beside(result)}, {result.targets:,} targets, "
        f"{result.seconds:.1f} s"
    )
    return 0
