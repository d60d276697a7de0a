"""Warnings at the start of a run about settings that the user probably did not intend."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core.config import Config
from mudd_core.config.mix import SOURCES, parse_phases, parse_sources
from mudd_core.config.mix_sources import source_config, source_names
from mudd_core.engine.optimizer_groups import learning_rate
from mudd_core.run.build.rows import row_shape
from mudd_core.run.ranks.rank_cores import usable_cores

if TYPE_CHECKING:
    from mudd_core.data.pipelines import Prepared
    from mudd_core.data.pipelines.mixture.data import MixedData

# Up to about four passes, repeated text is worth nearly as much as new text (Muennighoff et al., 2023).
MANY_EPOCHS = 4.0


def of_level(detected: str, machine: str) -> list[str]:
    """Return a warning if an x86-64 CPU lacks the instructions of the fast kernels. machine: platform.machine()."""
    if detected != "portable" or machine != "x86_64":
        return []
    return [
        "[isa] this CPU lacks AVX2, FMA or F16C: the portable kernels are used, which are about 10 times slower"
    ]


def of_threads(threads: int) -> list[str]:
    """Return a warning if there are more threads than cores."""
    cores = usable_cores()
    if threads <= cores:
        return []
    return [
        f"[train.threads] {threads} threads share {cores} usable core{'s' * (cores > 1)}, which is "
        f"slower than one thread per core; set train.threads={cores} (or OMP_NUM_THREADS)"
    ]


def of_saving(config: Config) -> list[str]:
    """Return a warning if a stop would lose updates."""
    if config.train.save:
        return []
    return ["[train.save] no checkpoint is written: after a stop, the run starts again from step 0"]


def of_warm_up(config: Config) -> list[str]:
    """Return a warning if the run ends before its learning rate has reached optim.lr."""
    steps, warm_up = config.train.steps, config.optim.warmup_steps
    if warm_up <= steps:
        return []
    return [
        f"[optim.warmup_steps] the warm-up of {warm_up:,} updates is longer than the run of {steps:,}: the rate ends "
        f"at {learning_rate(config, steps - 1):.3g} and never reaches optim.lr {config.optim.lr:g}; lower "
        "optim.warmup_steps or raise train.steps"
    ]


def of_wire(config: Config, nodes: int) -> list[str]:
    """Return a warning if mesh.wire changes nothing."""
    wire = config.mesh.wire
    if wire == "fp32" or nodes > 1:
        return []
    return [f"[mesh.wire] {wire} has no effect: ranks of one host send no gradients; set mesh.wire=fp32"]


def of_files(text: Prepared) -> list[str]:
    """Return the warnings of `describe` about files of ids."""
    return [line.partition(" ")[2].strip() for line in text.describe() if line.startswith("warning ")]


def _tokens_of_an_epoch(config: Config, text: Prepared) -> int:
    """Return the tokens of one pass; packed examples count with all positions of their sequences, including padding."""
    if config.data.pipeline != "chat":
        return text.train_tokens
    return text.rows("train", row_shape(config)).rows * config.train.seq_len


def many_epochs(config: Config, steps: int, there: int, about: str = "") -> list[str]:
    """Return a warning if `steps` updates read the text more than MANY_EPOCHS times. there: tokens of the text, 0 if
    unknown. about: "about " if they are estimated.
    """
    train = config.train
    read = steps * train.batch_size * train.seq_len
    epochs = read / there if there else 0.0
    if epochs <= MANY_EPOCHS or train.epochs:  # a number of epochs that the user set is intended
        return []
    return [
        f"[data] the run reads {read:,} tokens, but the text has only {about}{there:,}, so it is read "
        f"{about}{epochs:,.1f} times; use more text or fewer train.steps"
    ]


def many_passes(config: Config, source: str, read: int, there: int, about: str = "") -> list[str]:
    """Return a warning if a run reads a source of a mixture after its end, or more than MANY_EPOCHS times.

    read: the tokens that the run reads of it. there: its tokens, 0 if unknown. about: "about " if they are estimated.
    """
    own, train, until = source_config(config, source).data.epochs, config.train, config.data.mix_until
    passes = read / there if there else 0.0
    if own and read > own * there > 0:
        what = f"{SOURCES}.{source}.epochs"
        ended = f"[{what}] the source {source} ends after {own} pass{'es' * (own > 1)}, and "
        if until == "all":  # the weights stay as they are until the last source has ended
            return [
                f"{ended}data.mix_until=all repeats it until the others have ended, {about}{passes:,.2f} passes in "
                f"all; give {source} a smaller weight, or set data.mix_until=first"
            ]
        return [
            f"{ended}train.steps={train.steps} reads it {about}{passes:,.2f} times, which a start refuses once it has "
            f"counted the tokens; set {what}=0, fewer train.steps or data.mix_until=first"
        ]
    # a number of passes that the user set is intended
    if passes <= max(MANY_EPOCHS, own, train.epochs):
        return []
    shorter = "data.mix_until=first" if until == "all" else "fewer train.steps"
    return [
        f"[data.mix] the run reads {read:,} tokens of the source {source}, which has only {about}{there:,}, so it is "
        f"read {about}{passes:,.1f} times; use more text, a smaller weight or {shorter}"
    ]


def of_mixture(config: Config) -> list[str]:
    """Return warnings about sources and phases of a mixture that no update reads."""
    if not config.data.mix:
        return []
    names, steps = source_names(config), config.train.steps
    unused = [name for name in parse_sources(config.data.sources) if name not in names]
    late = [phase.step for phase in parse_phases(config.data.mix_phases) if phase.step >= steps]
    found = []
    if unused:
        found.append(
            f"[data.sources] not in data.mix, so never read: {', '.join(unused)}; add {unused[0]}:WEIGHT to data.mix, "
            "or remove its data.sources"
        )
    if late and not config.train.epochs:
        found.append(
            f"[data.mix_phases] no update follows step {late[0]:,}, because train.steps={steps:,}; raise train.steps, "
            "or remove the phase"
        )
    return found


def _of_sources(config: Config, text: MixedData) -> list[str]:
    """Return warnings about sources that are small for the run."""
    train, found = config.train, list[str]()
    counts = text.schedule.counts(train.steps * train.batch_size)
    for name, count, data in zip(text.names, counts, text.of, strict=True):
        there = _tokens_of_an_epoch(source_config(config, name), data)
        found += many_passes(config, name, count * train.seq_len, there)
    return found


def of_text(config: Config, text: Prepared) -> list[str]:
    """Return warnings about a text that is small for the run, and a vocabulary that is smaller than the config's."""
    if config.data.mix:
        from mudd_core.data.pipelines.mixture.data import MixedData

        assert isinstance(text, MixedData)
        found = _of_sources(config, text)
    else:
        found = many_epochs(config, config.train.steps, _tokens_of_an_epoch(config, text))
    if (
        text.tokenizer is not None
        and config.data.tokenizer == "bpe"
        and text.vocab_size < config.data.vocab_size
    ):
        found.append(
            f"[data.vocab_size] expected a vocabulary of {config.data.vocab_size:,} tokens, got {text.vocab_size:,}: "
            "the text is too small for a larger BPE vocabulary"
        )
    return found
