"""The statistics that mu-Transformer logs beside its loss, by its names (docs/maths/mup.md, 4.4)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mudd_core.config import Config, MupConfig
from mudd_core.engine.mup_probe import Probe
from mudd_core.models.mup_names import original_name

if TYPE_CHECKING:
    from mudd_core.engine.model import Model

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

_ARENA = 2**28  # bytes that the activations of one read may have
_BY_LAYER = ("w_a", "w_f", "g_a", "g_f")  # begin the names that the original splits by layer


class MupStatistics:
    """Reads the activations before an update and compares the weights after it with those before."""

    def __init__(self, config: Config, model: Model, shape: MupConfig) -> None:
        """config: of a run. shape: of the model."""
        self._log, self._model, self._shape = config.log, model, shape
        self._length = config.train.seq_len
        self._probes: dict[int, Probe] = {}
        self._before: dict[str, Array] = {}
        self._found: dict[str, float] = {}

    def before(self, inputs: Ids) -> None:
        """Take what the update will change; inputs [B, T]: all rows of its batch."""
        self._found = self._activations(inputs) if self._log.activations else {}
        if self._log.weights:
            self._before = {name: np.array(value) for name, value in self._model.parameters.items()}

    def after(self, rate: float) -> dict[str, float]:
        """All statistics of the update, which was made at this learning rate."""
        if self._log.weights:
            self._found |= self._updates(rate)
        found, self._found, self._before = self._found, {}, {}
        return found

    def _activations(self, inputs: Ids) -> dict[str, float]:
        """Means of |z| by `<statistic>_l1_<layer>`, over the whole batch."""
        shape = self._shape
        samples = _samples(shape, *inputs.shape)
        if samples not in self._probes:
            self._probes[samples] = Probe(self._model, samples, inputs.shape[1], logits=False)
        sums: dict[str, float] = {}
        for first in range(0, len(inputs), samples):
            rows = np.ascontiguousarray(inputs[first : first + samples], np.int32)
            for name, value in self._probes[samples].read(rows).items():
                statistic, _, layer = name.rpartition("_")
                if shape.rotary_base or statistic not in ("aqr", "akr"):
                    key = f"{statistic}_l1_{layer}"
                    sums[key] = sums.get(key, 0.0) + float(np.abs(value).mean(dtype=np.float64))
        return {name: value * samples / len(inputs) for name, value in sums.items()}

    def _updates(self, rate: float) -> dict[str, float]:
        """Means of |change| in units of the parameter's rate by `uu_<name>`, with the layer of matrices and gains."""
        sums: dict[str, list[float]] = {}  # of |change|, of elements
        rates: dict[str, float] = {}
        for ours, before in self._before.items():
            theirs, layer = original_name(ours)
            key = f"uu_{theirs}_{layer:02d}" if theirs.startswith(_BY_LAYER) else f"uu_{theirs}"
            change = np.abs(self._model.parameters[ours] - before).sum(dtype=np.float64)
            total = sums.setdefault(key, [0.0, 0.0])
            total[0] += float(change)
            total[1] += before.size
            rates[key] = rate * float(self._model.store.describe(ours)["lr_scale"])
        return {
            key: change / size / rates[key] if rates[key] else math.nan
            for key, (change, size) in sums.items()
        }


def _samples(shape: MupConfig, batch: int, length: int) -> int:
    """Rows of one read: a power of two that divides the batch, and whose activations fit _ARENA."""
    of_row = 4 * length * shape.n_layer * (11 * shape.d_model + 3 * shape.d_ff + 2 * shape.n_head * length)
    samples = batch & -batch
    while samples > 1 and samples * of_row > _ARENA:
        samples //= 2
    return samples


def statistics_of(config: Config, model: Model) -> MupStatistics | None:
    """The statistics that the config asks for; None where it asks for none, and for other families."""
    shape = model.config
    return (
        MupStatistics(config, model, shape)
        if isinstance(shape, MupConfig) and has_statistics(config)
        else None
    )


def has_statistics(config: Config) -> bool:
    """Whether a run logs statistics of this kind."""
    return isinstance(config.model, MupConfig) and (config.log.weights or config.log.activations)
