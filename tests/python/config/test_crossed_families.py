"""Every combination of a family with a part of another family: it works, or it is refused by name with the reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, check_config, load_config
from mudd_core.config.families import FAMILIES
from mudd_core.config.families.crossed import FEATURES

CONFIGS = {name: f"{name}/tiny.py" for name in FAMILIES}
# A part of a model: its field, the families that have it, and the start of the reason for each other family.
CROSSES: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "muP": (
        "optim.rule=mup",
        ("mup",),
        {
            "gpt2": "its initial values and score scale do not follow a base width",
            "transformer_pp": "its initial values and score scale do not follow a base width",
            "muddformer": "muP has no rule here for the generators of its mixing weights",
            "tokenformer": "muP has no rule here for slots, whose scores are normalised over the number of slots",
            "mixtral": "muP has no rule here for the router of experts",
        },
    ),
    "base width": (
        "model.d_base=32",
        ("mup",),
        {
            "gpt2": "has no base width: its initial values",
            "transformer_pp": "has no base width: its initial values",
            "muddformer": "has no base width: muP has no rule here for the generators",
            "tokenformer": "has no base width: muP has no rule here for slots",
            "mixtral": "has no base width: muP has no rule here for the router",
        },
    ),
    "experts": (
        "model.n_expert=4",
        ("muddformer", "mixtral"),
        {
            "gpt2": "has no experts: experts are SwiGLU without biases; use model.family=mixtral",
            "transformer_pp": "has no experts: model.family=mixtral is the same block with experts",
            "tokenformer": "has no experts: its feed-forward attends to slots, for which no routing is defined",
            "mup": "has no experts: muP has no rule here for the router of experts",
        },
    ),
    "experts of several ranks": (
        "mesh.expert=2",
        ("mixtral",),
        {
            "muddformer": "muddformer has no experts; set model.n_expert, or use mesh.expert=1",
            **{
                name: f"{name} has no experts; use mesh.expert=1"
                for name in ("gpt2", "transformer_pp", "tokenformer", "mup")
            },
        },
    ),
    "MUDD connections": (
        "model.dilation=2",
        ("muddformer",),
        {
            "gpt2": "has no MUDD connections: for the block of GPT-NeoX with them use model.family=muddformer "
            "model.block=pythia",
            "transformer_pp": "has no MUDD connections: for this block with them use model.family=muddformer",
            "mixtral": "has no MUDD connections: for experts with them use model.family=muddformer model.n_expert=N",
            "tokenformer": "has no MUDD connections: they mix the inputs of matrices for q, k and v",
            "mup": "has no MUDD connections: muP has no rule here for the generators of mixing weights",
        },
    ),
    "slots": (
        "model.slot_num=64",
        ("tokenformer",),
        {
            "mup": "has no slots: muP has no rule here for slots; use model.family=tokenformer",
            **dict.fromkeys(
                ("gpt2", "transformer_pp", "muddformer", "mixtral"),
                "has no slots: its projections are matrices; use model.family=tokenformer",
            ),
        },
    ),
    "growth": (
        "start.grow_init=zero_keys",
        ("tokenformer",),
        {
            name: f"expected model.family=tokenformer, got {name}, which has no slots that could grow"
            for name in ("gpt2", "transformer_pp", "muddformer", "mixtral", "mup")
        },
    ),
    "slots to load": (
        "start.load_parameters_path_slot_number=8",
        ("tokenformer",),
        {
            name: f"expected model.family=tokenformer, got {name}, which has no slots that could grow"
            for name in ("gpt2", "transformer_pp", "muddformer", "mixtral", "mup")
        },
    ),
    "a sliding window": (
        "model.sliding_window=16",
        ("transformer_pp",),
        {
            name: f"expected model.family=transformer_pp, got {name}, which has no such field; leave it out"
            for name in ("gpt2", "muddformer", "tokenformer", "mixtral", "mup")
        },
    ),
}
CASES = [(cross, family) for cross in CROSSES for family in CONFIGS]


def of(cross: str, family: str) -> tuple[str, str]:
    """Return the argument of a cross, and the reason that refuses it; empty if it works."""
    word, having, reasons = CROSSES[cross]
    if word.startswith("start.load"):
        word += " start.load_parameters_path=runs/small"
    return word, "" if family in having else reasons[family]


@pytest.mark.parametrize(("cross", "family"), CASES)
def test_a_combination_works_or_is_refused_by_name_with_the_reason(cross: str, family: str) -> None:
    words, reason = of(cross, family)
    name, _, value = words.split()[0].partition("=")
    if not reason:
        check_config(load_config(CONFIGS[family], words.split()))
        return
    with pytest.raises(UserError) as refused:
        load_config(CONFIGS[family], words.split())
    told = str(refused.value)
    place = "[mesh] expert=2" if name == "mesh.expert" else f"[config] {name}: expected "
    assert told.startswith(place) and reason in told and family in told, told
    assert "unknown" not in told
    changed: Any = int(value) if value.isdecimal() else value
    with pytest.raises(UserError) as in_python:
        check_config(load_config(CONFIGS[family]).replace(name, changed))
    assert reason in str(in_python.value)


def test_the_table_has_every_family() -> None:
    assert CONFIGS.keys() == {"gpt2", "transformer_pp", "muddformer", "tokenformer", "mup", "mixtral"}
    for cross, (_, having, reasons) in CROSSES.items():
        assert {*having, *reasons} == CONFIGS.keys() and not {*having} & reasons.keys(), cross


def test_every_field_of_a_part_belongs_to_a_family() -> None:
    fields = {
        name: {field.name for field in dataclasses.fields(one.config)} for name, one in FAMILIES.items()
    }
    for feature in FEATURES:
        for name in feature.fields:
            assert any(name in own for own in fields.values()), name
            for family, own in fields.items():
                assert name in own or family in feature.reasons or "" in feature.reasons, (family, name)


@pytest.mark.parametrize("word", ["model.n_expert=4", "--model.n_expert=4", "--n_expert=4", "--n-expert 4"])
def test_each_spelling_of_an_argument_gets_the_reason(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=tokenformer/tiny.py", *word.split()]) == 2
    told = capsys.readouterr().err
    assert "model.n_expert: expected model.family=muddformer or mixtral, got tokenformer" in told, told


def test_a_field_that_no_family_has_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"unknown field 'model.slot_nmu' .*did you mean 'model.slot_num'"):
        load_config("tokenformer/tiny.py", ["model.slot_nmu=4"])
    with pytest.raises(UserError, match=r"unknown field 'train.slot_num'"):
        mc.load_config("tiny.py").replace("train.slot_num", 4)
    assert Config().model.family == "transformer_pp"
