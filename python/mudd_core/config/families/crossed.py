"""Combinations of families that are not defined: the fields and rules of one family in a config of another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from mudd_core.config.families.experts import ExpertFields
from mudd_core.config.families.family import FAMILIES
from mudd_core.config.families.model_config import ModelConfig
from mudd_core.config.families.tokenformer import SLOT_FIELDS

_NO_RULE = "muP has no rule here for"
# Why a family has no muP rates, in messages about optim.rule and model.d_base.
MUP_REASONS = {
    "gpt2": "its initial values and score scale do not follow a base width; use model.family=mup",
    "transformer_pp": "its initial values and score scale do not follow a base width; use model.family=mup",
    "muddformer": f"{_NO_RULE} the generators of its mixing weights",
    "tokenformer": f"{_NO_RULE} slots, whose scores are normalised over the number of slots instead of a width",
    "mixtral": f"{_NO_RULE} the router of experts and its balance loss",
}


@dataclass(frozen=True)
class Feature:
    """A part of a model that some families have.

    has: the end of the sentence `family x has no ...`. fields: names of the fields that belong to it. reasons: why a
    family lacks it, and what to use instead, by family.
    """

    has: str
    fields: frozenset[str]
    reasons: Mapping[str, str]


FEATURES = (
    Feature(
        "experts",
        frozenset(field.name for field in dataclasses.fields(ExpertFields)),
        {
            "gpt2": "experts are SwiGLU without biases; use model.family=mixtral",
            "transformer_pp": "model.family=mixtral is the same block with experts",
            "tokenformer": "its feed-forward attends to slots, for which no routing is defined; model.ffn_slot_num "
            "sets its size",
            "mup": f"{_NO_RULE} the router of experts and its balance loss; use model.family=mixtral",
        },
    ),
    Feature(
        "MUDD connections",
        frozenset(
            [
                "mix",
                "streams",
                "prenorm",
                "postnorm",
                "last_norm",
                "hidden_round",
                "last_expand",
                "hidden",
                "dilation",
                "period",
                "window",
                "first_norms",
                "ffn_realloc",
            ]
        ),
        {
            "gpt2": "for the block of GPT-NeoX with them use model.family=muddformer model.block=pythia",
            "transformer_pp": "for this block with them use model.family=muddformer",
            "mixtral": "for experts with them use model.family=muddformer model.n_expert=N",
            "tokenformer": "they mix the inputs of matrices for q, k and v, and are not defined for slots; use "
            "model.family=muddformer",
            "mup": f"{_NO_RULE} the generators of mixing weights; use model.family=muddformer",
        },
    ),
    Feature(
        "slots",
        frozenset(SLOT_FIELDS),
        {
            "mup": f"{_NO_RULE} slots; use model.family=tokenformer",
            "": "its projections are matrices; use model.family=tokenformer",
        },
    ),
    Feature("base width", frozenset(["d_base"]), MUP_REASONS),
)


def crossed(own: str, path: str) -> str:
    """Return why the family `own` lacks a field of other families; empty if no other family has `model.<name>`."""
    section, _, name = path.rpartition(".")
    if section not in ("", "model"):
        return ""
    having = [
        family.name
        for family in FAMILIES.values()
        if not family.config.registered_name and name in _names(family.config)
    ]
    if not having or own in having:
        return ""
    head = f"model.{name}: expected model.family={' or '.join(having)}, got {own}"
    feature = next((one for one in FEATURES if name in one.fields), None)
    if feature is None:
        return f"{head}, which has no such field; leave it out"
    reason = feature.reasons.get(own) or feature.reasons.get("", "leave it out")
    return f"{head}, which has no {feature.has}: {reason}"


def _names(config: type[ModelConfig]) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def rule_fault(model: ModelConfig, rule: str) -> str:
    """Return the fault of an optim.rule other than sp for a family without a base width; empty if it has one."""
    if hasattr(model, "d_base"):
        return ""
    reason = MUP_REASONS.get(model.family, "it has no base width")
    return f"optim.rule: expected sp for family {model.family}, got {rule}: {reason}"
