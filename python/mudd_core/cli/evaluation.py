"""What `validate` evaluates: a split, or for MaxText's only_eval=True weights that load_parameters_path names."""

from __future__ import annotations

import sys

from mudd_core.base.errors import SaveError, UserError
from mudd_core.cli.request import Request
from mudd_core.config import Config
from mudd_core.data.pipelines import Prepared
from mudd_core.engine.model import Model
from mudd_core.run.build.protocols import batch_count, batches_of, mean_of, whole_split
from mudd_core.run.build.rows import held_out_rows
from mudd_core.run.loop import signals
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.loop.start_evaluation import add_evaluation, evaluate_run, evaluate_start
from mudd_core.run.records.events import Validation
from mudd_core.run.report.validation_line import ValidationLine


def evaluate_named(request: Request, config: Config) -> int:
    """Print the loss of the weights that the config starts from; the work directory gets the tags."""
    for name in ("--split", "--step"):
        if name in request.options:
            raise UserError(
                f"[arguments] {name}: expected a run to read, got load_parameters_path; leave one of them out"
            )
    result = evaluate_start(
        config,
        request.folder,
        lambda text: print(text, flush=True),
        fields={} if request.resolved is None else request.resolved.fields,
        stop=lambda: signals.stop_reason() is not None,
    )
    if result is None:
        print("stopped; the evaluation was dropped")
        return 75
    print(
        f"step {result.step}: validation loss {result.val_loss:.6f}, {result.precise_text}, "
        f"{result.targets:,} targets, {result.seconds:.1f} s"
    )
    return 0


def evaluate_split(config: Config, text: Prepared, model: Model, step: int, split: str) -> Validation:
    """Evaluate a checkpoint on the split `valid` or `test`; a terminal shows how far it is."""
    whole = whole_split(config)
    rows = held_out_rows(whole, text, split)
    line = ValidationLine(batch_count(whole, rows.rows))
    try:
        result = evaluate(
            model,
            batches_of(whole, rows, text.tokenizer),
            step=step,
            bytes_per_target=text.valid_bytes_per_target,
            mean=mean_of(config),
            report=line.batch,
        )
    finally:
        line.close()
    assert result is not None
    return result


def evaluate_checkpoint(
    request: Request, config: Config, text: Prepared, model: Model, step: int
) -> Validation:
    """Evaluate a checkpoint of the run with the program's lines; the run's TensorBoard gets the tags.

    A folder that another process trains in, or that cannot be written, keeps its files; a warning says so.
    """
    style, result = evaluate_run(
        request.folder, config, model, text, step, lambda line: print(line, flush=True)
    )
    try:
        add_evaluation(request.folder, style, result)
    except (UserError, SaveError, OSError) as error:
        print(f"warning: the evaluation is not in TensorBoard: {error}", file=sys.stderr)
    return result
