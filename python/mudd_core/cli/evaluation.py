"""Evaluate a run by `validate`: a split, or, for MaxText's only_eval=True, the weights of load_parameters_path."""

from __future__ import annotations

import sys

from mudd_core.base.errors import SaveError, UserError
from mudd_core.cli.reading import asked_to_stop
from mudd_core.cli.request import Request
from mudd_core.config import Config
from mudd_core.data.pipelines import Prepared
from mudd_core.engine.model import Model
from mudd_core.engine.pairs import PairEvaluator
from mudd_core.run.build.protocols import batch_counts, batches_of, mean_of, whole_split
from mudd_core.run.build.rows import held_out_rows
from mudd_core.run.loop import signals
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Validation
from mudd_core.run.report.progress import Progress, ValidationLine

STOPPED = "stopped; the evaluation was dropped"


def evaluate_named(request: Request, config: Config) -> int:
    """Print the loss of the config's initial weights, and write the tags to the work directory."""
    from mudd_core.programs.maxtext.only_eval import evaluate_start

    for name in ("--split", "--step", "--average"):
        if name in request.options:
            raise UserError(
                f"[arguments] {name} applies only to a run; leave out {name} or load_parameters_path"
            )
    result = evaluate_start(
        config,
        request.folder,
        lambda text: print(text, flush=True),
        fields={} if request.resolved is None else request.resolved.fields,
        stop=lambda: signals.stop_reason() is not None,
    )
    if result is None:
        print(STOPPED)
        return 75
    print(
        f"step {result.step}: validation loss {result.val_loss:.6f}, {result.precise_text}, "
        f"{result.targets:,} targets, {result.seconds:.1f} s"
    )
    return 0


def evaluate_split(
    config: Config, text: Prepared, model: Model, step: int, split: str, ranks: Ranks
) -> Validation | None:
    """Evaluate a checkpoint on the split `valid` or `test`. Return None if a stop was requested.

    Progress goes to standard error. ranks: they divide the batches, or run each together if the mesh shards weights.
    """
    whole = whole_split(config)
    rows = held_out_rows(whole, text, split)
    line = (
        ValidationLine(sum(batch_counts(whole, rows)), Progress(sys.stderr, paced=True))
        if ranks.first
        else None
    )
    try:
        return evaluate(
            model if model.pairs is None else PairEvaluator(model),
            batches_of(whole, rows, text.tokenizer, text.documents[1]),
            step=step,
            bytes_per_target=text.valid_bytes_per_target,
            stop=asked_to_stop(ranks, step),
            ranks=ranks,
            together=config.mesh.runs_together(ranks.world),
            mean=mean_of(config),
            report=line.batch if line is not None else lambda sums: None,
        )
    finally:
        if line is not None:
            line.close()


def evaluate_checkpoint(
    request: Request, config: Config, text: Prepared, model: Model, step: int, ranks: Ranks
) -> Validation | None:
    """Evaluate a checkpoint of the run, print the lines of its log style, and write the tags to the run's TensorBoard.

    Files stay unchanged if another process trains in the folder, or if the folder is not writable; a warning says so.
    Return None if a stop was requested.
    """
    from mudd_core.programs.maxtext.only_eval import add_evaluation, evaluate_run

    say = (lambda line: print(line, flush=True)) if ranks.first else (lambda line: None)
    stop = asked_to_stop(ranks, step)
    style, result = evaluate_run(request.folder, config, model, text, step, say, stop, ranks)
    if ranks.first and result is not None:
        try:
            add_evaluation(request.folder, style, result)
        except (UserError, SaveError, OSError) as error:
            print(f"warning: the evaluation is not in TensorBoard: {error}", file=sys.stderr)
    return result
