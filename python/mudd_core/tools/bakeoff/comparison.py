"""Comparisons of families, preset or chosen: configs with equal parameters or equal FLOPs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mudd_core.base.errors import UserError
from mudd_core.config import FAMILIES, Config, apply_overrides, check_config, read_config, split_words
from mudd_core.config.families import in_family, named_family
from mudd_core.config.families.mixtral import MixtralConfig
from mudd_core.config.families.mup import MupConfig
from mudd_core.config.families.tokenformer import TokenFormerConfig
from mudd_core.config.fields import Scalar, replace_path, with_fields
from mudd_core.config.own_files import split_name
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.model_shape import resolved_model

# The field that changes a family's size, but not its depth, residual width or heads.
KNOBS = {"tokenformer": "slot_num"}
UNIT = 8  # the field changes in multiples of this number


@dataclass(frozen=True)
class Candidate:
    """A name for legends and folders, and the config of its runs except for seed and work directory.

    grown_from: the configs of earlier runs, each of which starts the next one (TokenFormers with more and more slots).
    """

    name: str
    config: Config
    grown_from: tuple[Config, ...] = ()

    @property
    def stages(self) -> tuple[Config, ...]:
        """Return the configs of all runs of this candidate, in order."""
        return (*self.grown_from, self.config)


@dataclass(frozen=True)
class Comparison:
    """The compared models; the first one is the reference. measure: val_bits_per_byte, or loss (of training)."""

    title: str
    measure: str
    candidates: tuple[Candidate, ...]
    note: str = ""


def parameters(config: Config, vocab_size: int) -> int:
    """Return the number of parameters of the config's model, without allocating them."""
    from mudd_core.engine.model import Model

    return Model(resolved_model(config, vocab_size), booked_only=True).n_parameters


def total_cost(candidate: Candidate, vocab_size: int) -> float:
    """Return the FLOPs of all runs of a candidate."""
    return sum(cost(config, vocab_size) for config in candidate.stages)


def cost(config: Config, vocab_size: int) -> float:
    """Return the FLOPs of one whole training."""
    shape = resolved_model(config, vocab_size)
    tokens = config.train.steps * config.train.batch_size * config.train.seq_len
    return flops_per_token(shape, shape.vocab_size, config.train.seq_len) * tokens


def equal_parameters(candidates: Sequence[Candidate], vocab_size: int) -> tuple[Candidate, ...]:
    """Change feed-forward widths or slots so that all models have about the first one's parameters; keep the steps."""
    wanted = parameters(candidates[0].config, vocab_size)
    return tuple(
        dataclasses.replace(one, config=_with_parameters(one.config, wanted, vocab_size))
        for one in candidates
    )


def _with_parameters(config: Config, wanted: int, vocab_size: int) -> Config:
    knob = KNOBS.get(config.model.family, "d_ff")

    def turned(value: int) -> Config:
        changed: Config
        if config.model.family == "mup":  # mup computes d_ff as the floor of ff_multiple * d_model
            changed = replace_path(config, "model.ff_multiple", (value + 0.25) / config.model.d_model)
        else:
            changed = replace_path(config, f"model.{knob}", value)
        return changed

    low = int(getattr(config.model, knob))
    at_low, at_high = (parameters(turned(value), vocab_size) for value in (low, 2 * low))
    slope = (at_high - at_low) / low  # except for rounding, parameters are linear in this field
    guess = UNIT * max(1, round((low + (wanted - at_low) / slope) / UNIT))
    near = [value for value in (guess - UNIT, guess, guess + UNIT) if value > 0]
    best = min((turned(value) for value in near), key=lambda c: abs(parameters(c, vocab_size) - wanted))
    if abs(parameters(best, vocab_size) / wanted - 1) > 0.05:
        raise UserError(
            f"[bakeoff] {config.model.family}: expected about {wanted:,} parameters, the nearest it "
            f"can have is {parameters(best, vocab_size):,} "
            f"(model.{knob}={getattr(best.model, knob)}); set other widths, or type --equal=flops"
        )
    return best


def equal_flops(candidates: Sequence[Candidate], vocab_size: int) -> tuple[Candidate, ...]:
    """Return the candidates with numbers of steps that make the FLOPs of all trainings equal to the first one's."""
    wanted = total_cost(candidates[0], vocab_size)
    evened = []
    for one in candidates:
        steps = max(1, round(one.config.train.steps * wanted / cost(one.config, vocab_size)))
        evened.append(dataclasses.replace(one, config=with_steps(one.config, steps)))
    return tuple(evened)


def with_steps(config: Config, steps: int, checks: int = 8) -> Config:
    """Return the config with this number of steps, validated (and saved, to resume) about `checks` times."""
    every = max(1, steps // checks)
    train = dataclasses.replace(
        config.train,
        steps=steps,
        eval_every=every,
        save_every=every,
        log_every=max(1, every // 10),
        keep_last=1,
    )
    train = dataclasses.replace(train, eval_every=train.log_every * max(1, every // train.log_every))
    return dataclasses.replace(config, train=train)


# Values of --equal: the name of the quantity to equalize, and the function that equalizes it.
EQUAL = {"parameters": ("parameters", equal_parameters), "flops": ("FLOPs", equal_flops)}


def base(family: str, tokens: int, words: Sequence[str], **model: Scalar) -> Config:
    """Return the family's tiny config with these overrides and model fields, with enough steps for `tokens`.

    A user's family, FILE.py:NAME or registered in this process, has the sizes and the recipe of Transformer++.
    """
    found = named_family(family)
    is_own = found.given is not None
    config = read_config("transformer_pp/tiny.py" if is_own else f"{family}/tiny.py")
    if is_own:
        config = dataclasses.replace(config, model=in_family(config.model, found))
    # The same number of heads as the others, and the learning rates of its base width.
    if isinstance(config.model, MupConfig):
        model = {"d_head": 32, "qk_scale": 1 / 32, **model}
    config = dataclasses.replace(config, model=with_fields(config.model, model))
    steps = config.train.steps
    config = apply_overrides(config, split_words(words, config, []))
    if config.train.steps != steps:
        raise UserError(
            f"[bakeoff] train.steps: expected --tokens=N, which sets the steps, got train.steps={config.train.steps}"
        )
    if isinstance(config.model, MupConfig) and config.model.d_base > config.model.d_model:
        config = replace_path(config, "model.d_base", config.model.d_model)
    check_config(config)
    per_step = config.train.batch_size * config.train.seq_len
    return with_steps(config, max(1, -(-tokens // per_step)))


def comparison(
    preset: str, families: Sequence[str], equal: str, tokens: int, words: Sequence[str], vocab: int
) -> Comparison:
    """Return the comparison of a preset; the preset `families` compares the families at equal `equal`."""
    if preset in _OF_ITS_OWN:
        return _OF_ITS_OWN[preset](tokens, words, vocab)
    return _families(families, equal, tokens, words, vocab)


def _readme(tokens: int, words: Sequence[str], _: int) -> Comparison:
    return Comparison(
        "MUDDFormer (both norms) against Transformer++",
        "loss",
        (
            Candidate("transformer_pp", base("transformer_pp", tokens, words)),
            Candidate("muddformer", base("muddformer", tokens, words, prenorm=True, postnorm=True)),
        ),
        "The plot in MUDDFormer's README: equal layers, widths and steps; MUDDFormer also has its generators.",
    )


def _mixture(tokens: int, words: Sequence[str], _: int) -> Comparison:
    sparse = base("mixtral", tokens, words)
    model = sparse.model
    assert isinstance(model, MixtralConfig)
    same = {name: getattr(model, name) for name in ("d_model", "n_layer", "n_head", "n_kv_head", "d_head")}
    dense = base("transformer_pp", tokens, words, **same, d_ff=model.top_k * model.d_ff)
    return Comparison(
        "Mixtral against the dense model of equal active FLOPs",
        "val_bits_per_byte",
        (Candidate("transformer_pp", dense), Candidate("mixtral", sparse)),
        f"{model.n_expert} experts, {model.top_k} a token; the dense feed-forward has the width of {model.top_k}.",
    )


def _growth(tokens: int, words: Sequence[str], vocab: int) -> Comparison:
    """Compare growth to 1x, 2x and 4x the slots, a third of the tokens each, with 4x from the start at equal FLOPs."""
    first = base("tokenformer", tokens // 3, words)
    if not isinstance(first.model, TokenFormerConfig):
        raise TypeError(f"[bakeoff] base: expected a TokenFormer, got a {first.model.family}")
    slots = first.model.slot_num
    second, third = (replace_path(first, "model.slot_num", factor * slots) for factor in (2, 4))
    grown = Candidate("grown twice", third, grown_from=(first, second))
    scratch = Candidate(
        "from scratch", replace_path(base("tokenformer", tokens, words), "model.slot_num", 4 * slots)
    )
    steps = max(1, round(scratch.config.train.steps * total_cost(grown, vocab) / total_cost(scratch, vocab)))
    scratch = dataclasses.replace(scratch, config=with_steps(scratch.config, steps))
    return Comparison(
        "TokenFormer grown twice against one trained from scratch, at equal FLOPs",
        "val_bits_per_byte",
        (scratch, grown),
        f"{slots}, {2 * slots} and {4 * slots} slots; new slots as the config's start.grow_init says.",
    )


def _families(
    families: Sequence[str], equal: str, tokens: int, words: Sequence[str], vocab: int
) -> Comparison:
    for family in families:
        if family not in FAMILIES and split_name(family) is None:
            raise UserError(
                f"[bakeoff] --families: expected some of {', '.join(FAMILIES)} or FILE.py:NAME, got '{family}'"
            )
    candidates = [Candidate(family.rpartition(":")[2], base(family, tokens, words)) for family in families]
    name, even = EQUAL[equal]
    evened = even(candidates, vocab)
    return Comparison(
        f"{len(evened)} families at equal {name}",
        "val_bits_per_byte",
        evened,
        "Each family trains with the recipe (rate, schedule, decay) of its tiny config.",
    )


# The presets with fixed models; the preset `families` uses --families.
_OF_ITS_OWN: dict[str, Callable[[int, Sequence[str], int], Comparison]] = {
    "muddformer-readme": _readme,
    "tokenformer-growth": _growth,
    "moe": _mixture,
}
PRESETS = ("families", *_OF_ITS_OWN)
