"""Size of a config, tokens of its training, and the time of the training on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mudd_core.config import Config, ModelConfig, config_folders, read_config
from mudd_core.engine.flops import flops_per_token, peak_flops
from mudd_core.engine.model import Model
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build.plan_time import SpeedOfRuns, ends_with_data
from mudd_core.run.store.run_folder import RunFolder

_USE = "# Use: "
_TRIES = 5  # measurements of the peak, about 2 ms each


@dataclass(frozen=True)
class Sizes:
    """A config as listed. tokens, seconds: None if the data decide the number of steps."""

    name: str
    parameters: int
    tokens: int | None
    text: str
    seconds: float | None


@dataclass
class Speed:
    """The speed of this machine, measured once for each precision.

    measured: the number of configs whose fraction of the peak a run in runs/ has measured.
    """

    peaks: dict[str, float] = field(default_factory=dict)
    runs: SpeedOfRuns = field(default_factory=lambda: SpeedOfRuns(RunFolder(Path("runs") / "any")))

    def seconds(self, config: Config, flops: float) -> float:
        """Return the time of this many FLOPs of the config's training."""
        precision = config.train.precision
        if precision not in self.peaks:
            self.peaks[precision] = peak_flops(precision, _TRIES)
        return flops / (self.peaks[precision] * self.runs.fraction(config)[0])

    def note(self) -> str:
        """Return the source of the times."""
        rates = ", ".join(f"{rate / 1e9:,.0f} GFLOP/s in {name}" for name, rate in self.peaks.items())
        return (
            f"Time here: an estimate from {rates}, measured now, and the fraction of it that a run of the same size in "
            "runs/ had, else half. Validation and saving are not in it."
        )


@cache
def _parameters(shape: ModelConfig) -> int:
    return Model(shape, booked_only=True).n_parameters


def text_of(name: str) -> str:
    """Return the name of a config's training text."""
    return _text(read_config(name))


def _text(config: Config) -> str:
    return config.data.recipe_text or "default"


def sizes_of(name: str, speed: Speed) -> Sizes:
    """Return the sizes of a config in configs/; the tokenizer of its recipe need not be on this machine."""
    config = read_config(name)
    text = _text(config)
    shape = resolved_model(config, expected_vocabulary(config))
    train = config.train
    parameters = _parameters(shape)
    if train.epochs or ends_with_data(config):
        return Sizes(name, parameters, None, text, None)
    tokens = train.steps * train.batch_size * train.seq_len
    flops = tokens * flops_per_token(shape, shape.vocab_size, train.seq_len)
    return Sizes(name, parameters, tokens, text, speed.seconds(config, flops))


def of_others() -> list[tuple[str, str, str]]:
    """Return (name, description, command) of each shipped file of another program.

    The first two lines of such a file are these comments.
    """
    files = [(file, folder) for folder in config_folders() for file in sorted(folder.rglob("*.y*ml"))]
    heads = {
        file.relative_to(folder).as_posix(): file.read_text(encoding="utf-8").splitlines()[:2]
        for file, folder in files
    }
    return [
        (name, lines[0].lstrip("# "), lines[1].removeprefix(_USE))
        for name, lines in heads.items()
        if len(lines) == 2 and lines[1].startswith(_USE)
    ]
