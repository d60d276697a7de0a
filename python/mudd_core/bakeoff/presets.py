"""The contests that can be asked for by name, and the open one over any families."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mudd_core.bakeoff.contest import Contest, Contestant, equal_flops, equal_parameters, with_steps
from mudd_core.config import FAMILIES, Config, apply_overrides, check_config, read_config, split_words
from mudd_core.errors import UserError

PRESETS = ("families", "muddformer-readme", "moe")


def base(family: str, tokens: int, words: Sequence[str], **model: Any) -> Config:
    """The family's tiny config with these words, long enough for `tokens`, model fields replaced."""
    config = read_config(f"{family}/tiny.py")
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, **model))
    config = apply_overrides(config, split_words(words, config, []))
    check_config(config)
    per_step = config.train.batch_size * config.train.seq_len
    return with_steps(config, max(1, -(-tokens // per_step)))


def contest(
    preset: str, families: Sequence[str], equal: str, tokens: int, words: Sequence[str], vocab: int
) -> Contest:
    """The contest of a preset; UserError for an unknown one."""
    if preset == "families":
        return _families(families, equal, tokens, words, vocab)
    if preset == "muddformer-readme":
        return Contest(
            "MUDDFormer (both norms) against Transformer++",
            "loss",
            (
                Contestant("transformer_pp", base("transformer_pp", tokens, words)),
                Contestant("muddformer", base("muddformer", tokens, words, prenorm=True, postnorm=True)),
            ),
            "The figure of MUDDFormer's README: equal layers, widths and steps; MUDDFormer has its generators on top.",
        )
    if preset == "moe":
        sparse = base("mixtral", tokens, words)
        model: Any = sparse.model
        dense = base("transformer_pp", tokens, words, d_ff=model.top_k * model.d_ff)
        return Contest(
            "Mixtral against the dense model of equal active FLOPs",
            "val_bits_per_byte",
            (Contestant("transformer_pp", dense), Contestant("mixtral", sparse)),
            f"{model.n_expert} experts, {model.top_k} a token; the dense feed-forward has the width of {model.top_k}.",
        )
    raise UserError(f"[bakeoff] --preset: expected one of {', '.join(PRESETS)}, got '{preset}'")


def _families(families: Sequence[str], equal: str, tokens: int, words: Sequence[str], vocab: int) -> Contest:
    for family in families:
        if family not in FAMILIES:
            raise UserError(f"[bakeoff] --families: expected some of {', '.join(FAMILIES)}, got '{family}'")
    contestants = [Contestant(family, base(family, tokens, words)) for family in families]
    if equal not in ("parameters", "flops"):
        raise UserError(f"[bakeoff] --equal: expected parameters or flops, got '{equal}'")
    evened = (equal_parameters if equal == "parameters" else equal_flops)(contestants, vocab)
    return Contest(
        f"{len(evened)} families at equal {'FLOPs' if equal == 'flops' else 'parameters'}",
        "val_bits_per_byte",
        evened,
        "Each family trains by the recipe (rate, schedule, decay) of its own tiny config.",
    )
