"""Measure how much each block of a trained MUDDFormer reads from every earlier state.

The mixture after block n reads state j (0 = embedding, j = output of block j - 1) into stream c with the weight
A[c, j] = a[c, j] + z[t, c, j]. Here a is learned and constant, and z is computed from token t (Xiao et al. 2025).
The command measures the mean and standard deviation of z over the tokens of held-out text.

weights.h5 contains `static`, `dynamic_mean` and `dynamic_std`, each a row-major float64 array [layers, streams, states]
with NaN for absent weights. It also contains the numbers `layers`, `streams`, `states`, `tokens`, `step`, and the
string `stream_names`. The one stream of the last block has the last index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mudd_core.base.paths import local, output_folder
from mudd_core.base.regular_files import write_text
from mudd_core.base.types import Array
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.tools import heatmap

if TYPE_CHECKING:
    from mudd_core.engine.muddformer_weights import Weights


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, rest = (parser := _parser()).read(words)
    if not (asked.config or asked.workdir):
        parser.require("RUN")
    from mudd_core.engine.muddformer_weights import measured_weights
    from mudd_core.run.build.rows import validation_batches
    from mudd_core.run.build.saved_model import load_run
    from mudd_core.run.store.saved_run import named_run, run_and_step

    out = local(asked.out, "[weights] --out") if asked.out else None
    if asked.workdir:
        asked.workdir, of_folder = run_and_step(asked.workdir)
        asked.step = of_folder if asked.step is None else asked.step
    names = ("config", "workdir", "trust_code")
    options = {f"--{name.replace('_', '-')}": getattr(asked, name) for name in names if getattr(asked, name)}
    config, run = named_run(options, rest)
    cache, model, step = load_run(config, run, asked.step)
    folder = output_folder(out or run.path / "weights" / f"step-{step}", "[weights] --out")
    weights = measured_weights(model, _some(validation_batches(config, cache), asked.windows))
    write_h5(folder / "weights.h5", weights, step)
    write_text(folder / "weights.svg", picture(weights, f"{config.name}, step {step}"))
    print(f"{folder / 'weights.h5'}\n{folder / 'weights.svg'}\n{weights.tokens:,} tokens of held-out text")
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("weights", __doc__ or "", fields="data.cache_dir=DIR", run="--workdir")
    parser.add_argument("--workdir", metavar="DIR", help="folder of a MUDDFormer run")
    parser.add_argument(
        "--config", metavar="FILE", help="config of a run in its default folder, instead of --workdir"
    )
    parser.add_argument(
        "--step", type=whole_number(0), metavar="N", help="checkpoint of step N instead of the newest"
    )
    parser.add_argument(
        "--windows",
        type=whole_number(1),
        default=32,
        metavar="N",
        help="sequences of held-out text to measure",
    )
    parser.add_argument("--out", metavar="DIR", help="folder to write to; default WORKDIR/weights/step-N")
    return parser


def _some(batches: Iterable[Mapping[str, Array]], windows: int) -> Iterator[Mapping[str, Array]]:
    for batch in batches:
        if windows <= 0:
            return
        yield {name: array[:windows] for name, array in batch.items()}
        windows -= len(batch["inputs"])


def write_h5(path: Path, weights: Weights, step: int) -> None:
    """Write the file described above; replace the file of an earlier call."""
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
    """Return an SVG: for each stream the mean weight of every state, and below it the spread over tokens."""
    kinds = {"q": "query", "k": "key", "v": "value", "r": "residual", "x": "all inputs"}
    mean, spread = (
        [heatmap.Panel(f"{kinds[name]}, {what}", _cells(array[:, c])) for c, name in enumerate(weights.names)]
        for what, array in (
            ("mean weight", weights.static + weights.mean),
            ("spread over tokens", weights.std),
        )
    )
    layers = len(weights.static)
    return heatmap.svg(
        title,
        [mean, spread],
        x_label="across: state that is mixed",
        y_label="down: block before",
        row_names=[f"block {i}" for i in range(layers)],
        column_names=["embedding", *(f"block {i}" for i in range(layers))],
    )


def _cells(array: Array) -> list[list[float | None]]:
    return [[None if np.isnan(v) else float(v) for v in row] for row in array]
