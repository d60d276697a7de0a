"""log.style: lines on stdout and further tags of TensorBoard and the tracker, in the way of an original program."""

from __future__ import annotations

from mudd_core.config import Config, MUDDFormerConfig
from mudd_core.engine.mup_statistics import has_statistics
from mudd_core.run.report.styles.jax_lm import JaxLmStyle
from mudd_core.run.report.styles.moe import MoeStyle
from mudd_core.run.report.styles.mu_transformer import MuTransformerStyle
from mudd_core.run.report.styles.muddformer import EVERY, MuddformerStyle
from mudd_core.run.report.styles.style import RunFacts, Style
from mudd_core.run.report.styles.tokenformer import TokenFormerStyle

__all__ = [
    "RunFacts",
    "Style",
    "has_own_start",
    "logs_step",
    "measures_weights",
    "reads_forward_statistics",
    "reads_norms",
    "reads_weights",
    "style_of",
]

STYLES: dict[str, type[Style]] = {
    "maxtext": MuddformerStyle,
    "mu_transformer": MuTransformerStyle,
    "jax_lm": JaxLmStyle,
    "moe": MoeStyle,
}


def style_of(facts: RunFacts) -> Style:
    """The style of a run; ours where log.style is auto or ours."""
    return _class_of(facts.config)(facts)


def has_own_start(config: Config) -> bool:
    """Whether a start prints our lines; a style prints those of its program."""
    return _class_of(config) is Style


def logs_step(config: Config, step: int) -> bool:
    """Whether update `step` gets a row in metrics.jsonl."""
    return step % config.train.log_every == 0 or step == config.train.steps


def reads_weights(config: Config, step: int) -> bool:
    """Whether the log reads weights after update `step`. All ranks ask: all wait for those of other nodes then."""
    statistics = has_statistics(config) and (logs_step(config, step) or logs_step(config, step + 1))
    return statistics or reads_norms(config, step)


def reads_norms(config: Config, step: int) -> bool:
    """Whether the log of update `step` has norms of weights. All ranks ask: each sums what it holds."""
    every = _class_of(config).weights_every
    return every > 0 and step % every == 0


def measures_weights(config: Config) -> bool:
    """Whether the log measures weights as a whole, at any update."""
    return config.log.weights or config.log.activations


def reads_forward_statistics(config: Config, step: int) -> bool:
    """Whether the log of update `step` has statistics of its forward pass. All ranks ask."""
    if not isinstance(config.model, MUDDFormerConfig) or config.model.mix == "none":
        return False
    return config.log.weights and _class_of(config) is MuddformerStyle and step % EVERY == 0


def _class_of(config: Config) -> type[Style]:
    """The class of the config's style; the two MaxText programs are told apart by the family of the model."""
    if config.log.style == "maxtext" and config.model.family == "tokenformer":
        return TokenFormerStyle
    return STYLES.get(config.log.style, Style)
