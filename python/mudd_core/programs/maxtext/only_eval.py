"""MaxText's only_eval=True: evaluation of the weights in start.load_parameters_path, with evaluation tags."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping

from mudd_core import _core
from mudd_core.base.errors import write_error
from mudd_core.base.framing import EventFiles
from mudd_core.config import Config, check_config
from mudd_core.data import pipelines
from mudd_core.data.pipelines import Prepared
from mudd_core.engine.batch_part import cut_batch
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.grow import take_start
from mudd_core.run.build.protocols import mean_of, whole_split
from mudd_core.run.build.rows import validation_batches
from mudd_core.run.build.start_source import check_start, fetch_start, read_source, start_path
from mudd_core.run.build.start_tokenizer import with_source_tokenizer
from mudd_core.run.build.stored_types import stored_in
from mudd_core.run.loop.evaluate import evaluate
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.records.events import Validation
from mudd_core.run.records.machine import Peak
from mudd_core.run.report.style import RunFacts, Style, style_of
from mudd_core.run.store.log_files import LineFile
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.run_store import RunStore

STEP = 0  # the step of the evaluation: as in the program, only weights are loaded


def evaluate_start(
    config: Config,
    folder: RunFolder,
    say: Callable[[str], None],
    *,
    fields: Mapping[str, object],
    stop: Callable[[], bool],
) -> Validation | None:
    """Evaluate the weights and write the evaluation tags to TensorBoard below `folder`; None if `stop` became true.

    folder: the folder of a run; if it is new, a later training may use it. Only TensorBoard and evaluations.jsonl
    change. Raise UserError if weights or validation sequences are missing.
    """
    start = dataclasses.replace(config.start, keep_optimizer=False, keep_step=False)
    config = dataclasses.replace(config, start=start)
    check_config(config)
    fetch_start(config)
    check_start(config)
    store = RunStore(folder)
    try:
        config, *said = with_source_tokenizer(config, None)
        text, model, taken = _loaded(config)
        for line in filter(None, (*said, taken)):
            say(line)
        if store.has_checkpoint():
            say(
                f"the run in {store.folder} has checkpoints, which are not evaluated: load_parameters_path takes "
                "precedence over them; remove it to evaluate the run"
            )
        style = _style(config, store.folder, model, text, fields)
        result = _evaluated(style, config, model, text, STEP, say, stop)
        if result is not None:
            _write(store, config.start.load_parameters_path, style, result)
        return result
    finally:
        store.close()


def evaluate_run(
    folder: RunFolder,
    config: Config,
    model: Model,
    text: Prepared,
    step: int,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    ranks: Ranks,
) -> tuple[Style, Validation | None]:
    """Evaluate the model of a checkpoint of the run in `folder`, and print the lines of its style."""
    style = _style(config, folder, model, text, {})
    return style, _evaluated(style, whole_split(config), model, text, step, say, stop, ranks)


def add_evaluation(folder: RunFolder, style: Style, result: Validation) -> None:
    """Write the evaluation of a checkpoint of the run in `folder` to its TensorBoard.

    Raise UserError if the folder is in use, SaveError or OSError if it cannot be written.
    """
    store = RunStore(folder)
    try:
        _write(store, str(store.folder.step_folder(result.step)), style, result)
    finally:
        store.close()


def _evaluated(
    style: Style,
    config: Config,
    model: Model,
    text: Prepared,
    step: int,
    say: Callable[[str], None],
    stop: Callable[[], bool],
    ranks: Ranks | None = None,
) -> Validation | None:
    """Evaluate the model, and print the lines of the style before it, at each batch and after it."""

    def say_all(lines: list[str]) -> None:
        for line in lines:
            say(line)

    say_all(style.validating())
    result = evaluate(
        model,
        validation_batches(config, text),
        step=step,
        bytes_per_target=text.valid_bytes_per_target,
        stop=stop,
        ranks=ranks,
        together=ranks is not None and config.mesh.runs_together(ranks.world),
        mean=mean_of(config),
        report=lambda sums: say_all(style.batch_validated(sums)),
    )
    if result is not None:
        say_all(style.validated(result))
    return result


def _style(
    config: Config, folder: RunFolder, model: Model, text: Prepared, fields: Mapping[str, object]
) -> Style:
    """Return the log style of the run, without its speed."""
    peak = Peak(lambda: 1.0)
    return style_of(
        RunFacts(config, folder, 0.0, peak, lambda: model.n_parameters, text.documents, fields=fields)
    )


def _loaded(config: Config) -> tuple[Prepared, Model, str]:
    """Return the data, the model with the loaded weights, and a line about the origin of the weights."""
    train = config.train
    _core.set_num_threads(train.threads)
    text = pipelines.prepare(config)
    shape = resolved_model(config, text.vocab_size)
    model = Model(
        shape, seed=train.seed, precision=train.precision, stored=stored_in(config).of(shape, config)
    )
    runs, _ = cut_batch(train.batch_size, train.shard_count(), train.micro_batch_size)
    model.evaluated_at_once = train.batch_size // runs
    return text, model, take_start(config, model, read_source(start_path(config)))


def _write(store: RunStore, source: str, style: Style, result: Validation) -> None:
    """Write the tags and a record to the folder; a new folder also gets the run's descriptions."""
    folder = store.folder
    is_new = not folder.holds_run and not folder.evaluations_file.exists()
    row = {"step": result.step, "weights": source, "val_loss": result.val_loss, "targets": result.targets}
    try:
        rows = LineFile(folder.evaluations_file)  # opened first, because it locks the folder
        rows.append({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **row})
        rows.sync()
        rows.close()
        board = EventFiles(folder.board_folder)
        board.add(result.step, style.eval_scalars(result), style.texts() if is_new else {})
        board.close()
    except OSError as error:
        raise write_error(error.filename or folder, error) from error
    store.settle()
