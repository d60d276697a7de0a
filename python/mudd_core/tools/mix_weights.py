"""Measures how much each block of a trained MUDDFormer reads of every earlier state.

A mixture behind block n gives stream c the weight A[c, j] = a[c, j] + z[t, c, j] of state j (0 = embedding, j = output
of block j - 1): a is learned and constant, z is made from token t (Xiao et al. 2025). Measured on held-out text:
mean and standard deviation of z over tokens. weights.h5 holds `static`, `dynamic_mean` and `dynamic_std`, each
[layers, streams, states] float64 row by row, NaN where there is no such weight; numbers `layers`, `streams`, `states`,
`tokens`, `step`, and the text `stream_names`. The last block's one stream is in the last place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local, output_folder
from mudd_core.base.regular_files import write_text
from mudd_core.base.types import Array
from mudd_core.config import MUDDFormerConfig
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.tools import heatmap

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


@dataclass(frozen=True)
class Weights:
    """Constant part, mean and standard deviation of the dynamic part, each [L, C, L + 1], over `tokens` tokens."""

    names: str
    static: Array
    mean: Array
    std: Array
    tokens: int


def main(words: Sequence[str]) -> int:
    """The command; returns the exit code."""
    asked, rest = _parser().read(words)
    from mudd_core.run.build.rows import validation_batches
    from mudd_core.run.build.saved_model import load_run
    from mudd_core.run.store.saved_run import named_run, run_and_step

    out = local(asked.out, "[weights] --out") if asked.out else None
    if asked.workdir:
        asked.workdir, of_folder = run_and_step(asked.workdir)
        asked.step = of_folder if asked.step is None else asked.step
    options = {f"--{name}": getattr(asked, name) for name in ("config", "workdir") if getattr(asked, name)}
    config, run = named_run(options, rest)
    cache, model, step = load_run(config, run, asked.step)
    folder = output_folder(out or run.path / "weights" / f"step-{step}", "[weights] --out")
    weights = measure(model, _some(validation_batches(config, cache), asked.windows))
    write_h5(folder / "weights.h5", weights, step)
    write_text(folder / "weights.svg", picture(weights, f"{config.name}, step {step}"))
    print(f"{folder / 'weights.h5'}\n{folder / 'weights.svg'}\n{weights.tokens:,} tokens of held-out text")
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("weights", __doc__ or "", fields="data.cache_dir=DIR", run="--workdir")
    parser.add_argument("--workdir", metavar="DIR", help="folder of a MUDDFormer run")
    parser.add_argument("--config", metavar="FILE", help="instead: config of a run in its default folder")
    parser.add_argument(
        "--step", type=whole_number(0), metavar="N", help="this checkpoint instead of the newest"
    )
    parser.add_argument(
        "--windows",
        type=whole_number(1),
        default=32,
        metavar="N",
        help="windows of held-out text to measure on",
    )
    parser.add_argument("--out", metavar="DIR", help="folder to write to; default WORKDIR/weights/step-N")
    return parser


def _some(batches: Iterable[Mapping[str, Array]], windows: int) -> Iterator[Mapping[str, Array]]:
    for batch in batches:
        if windows <= 0:
            return
        yield {name: array[:windows] for name, array in batch.items()}
        windows -= len(batch["inputs"])


def _is_text(batch: Mapping[str, Array]) -> Array:
    """Return which positions [B, T] of a batch hold text, by its most direct mark of padding."""
    for part in ("key_mask", "segments"):
        if part in batch:
            marked: Array = batch[part] != 0
            return marked
    counted: Array = batch.get("targets", batch["inputs"]) >= 0
    return counted


def measure(model: Model, batches: Iterable[Mapping[str, Array] | Array]) -> Weights:
    """Weights of a model of the family over the text of batches; UserError for other families.

    A batch is ids [B, T] without padding, or has `inputs` [B, T] and may have `targets`, `key_mask` or `segments`:
    padding counts nowhere.
    """
    config = model.config
    if not isinstance(config, MUDDFormerConfig) or config.mix == "none":
        raise UserError("[weights] model: expected a MUDDFormer with mixtures of earlier states")
    names, layers = config.streams, config.n_layer
    shape = (layers, len(names), layers + 1)
    static, total, squares = (np.full(shape, np.nan) for _ in range(3))
    tokens = 0
    for layer in range(layers):
        if config.sources(layer):
            place = _place(config, layer)
            static[place] = model.parameters[f"blocks.{layer}.mix.bias"]
            total[place] = squares[place] = 0.0
    for given in batches:
        batch = {"inputs": given} if isinstance(given, np.ndarray) else given
        text = _is_text(batch)
        tokens += int(text.sum())
        for layer, made in (
            _dynamic(model, config, batch["inputs"]) if config.mix == "dynamic" else {}
        ).items():
            place = _place(config, layer)
            z = made[text].reshape(-1, *static[place].shape).astype(np.float64)
            total[place] += z.sum(0)
            squares[place] += (z * z).sum(0)
    if not tokens:
        raise UserError("[weights] text: there is no held-out window to measure on")
    mean = total / tokens
    return Weights(names, static, mean, np.sqrt(np.maximum(squares / tokens - mean**2, 0.0)), tokens)


def _place(config: MUDDFormerConfig, layer: int) -> tuple[Array, ...]:
    streams = [len(config.streams) - 1] if config.mixtures(layer) == 1 else list(range(len(config.streams)))
    return np.ix_([layer], streams, config.sources(layer))


def _dynamic(model: Model, config: MUDDFormerConfig, ids: Array) -> dict[int, Array]:
    """The dynamic weights [B, T, C l] of every mixture, by layer."""
    from mudd_core import _core
    from mudd_core.graph.recording import Recorder, recorded, running
    from mudd_core.models import Batch, muddformer
    from mudd_core.models.dense_connections import captured_weights

    recorder = Recorder(
        model.store, training=False, samples=len(ids), shards=1, capture=["*.dynamic_weights"]
    )
    with running(recorder):
        hidden = muddformer.model(config, Batch(recorder.input("inputs", ids.shape)), None)
    watched = captured_weights(config, recorder.sown)
    numbers = [value.number for value in watched.values()]
    executor = _core.Executor(
        recorder.graph, model.store, losses=[], keep=[*numbers, recorded(hidden.h).number]
    )
    executor.set("inputs", np.ascontiguousarray(ids, np.int32))
    executor.run()
    return {layer: np.array(executor.get(value.number)) for layer, value in watched.items()}


def write_h5(path: Path, weights: Weights, step: int) -> None:
    """The file described above; replaces one of an earlier call."""
    from mudd_core import _h5

    fresh = path.with_suffix(".part")
    fresh.unlink(missing_ok=True)
    with _h5.File.create(str(fresh)) as h5:
        arrays = {"static": weights.static, "dynamic_mean": weights.mean, "dynamic_std": weights.std}
        for name, array in arrays.items():
            h5.create_dataset(name, np.dtype(np.float64), array.size)
            h5.write(name, np.ascontiguousarray(array.reshape(-1), np.float64))
        layers, streams, states = weights.static.shape
        sizes = {
            "layers": layers,
            "streams": streams,
            "states": states,
            "tokens": weights.tokens,
            "step": step,
        }
        for name, number in sizes.items():
            h5.set_number(name, number)
        h5.set_text("stream_names", weights.names)
    fresh.replace(path)


def picture(weights: Weights, title: str) -> str:
    """SVG: for each stream the mean weight of every state, and below its spread over tokens."""
    kinds = {"q": "query", "k": "key", "v": "value", "r": "residual", "x": "all inputs"}
    mean, spread = (
        [heatmap.Panel(f"{kinds[name]}, {what}", _cells(array[:, c])) for c, name in enumerate(weights.names)]
        for what, array in (
            ("mean weight", weights.static + weights.mean),
            ("spread over tokens", weights.std),
        )
    )
    return heatmap.svg(
        title, [mean, spread], x_label="across: state (0 = embedding)", y_label="down: block before"
    )


def _cells(array: Array) -> list[list[float | None]]:
    return [[None if np.isnan(v) else float(v) for v in row] for row in array]
