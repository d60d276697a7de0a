"""Composition of Hydra configs, compared with hydra-core's result for the same command lines (tests/goldens/hydra)."""

import json

import pytest

from mudd_core.base.errors import UserError
from mudd_core.programs.moe.hydra.compose import Composed, compose
from mudd_core.programs.moe.hydra.files import Folders
from mudd_core.programs.moe.hydra.interpolation import resolved
from mudd_core.programs.moe.hydra.words import split_hydra_words
from mudd_core.programs.moe.hydra.written import to_yaml
from places import ROOT

GOLDENS = ROOT / "tests" / "goldens" / "hydra"
GOLDEN = json.loads((GOLDENS / "compose.json").read_text(encoding="utf-8"))


def composed(config: str, words: list[str]) -> Composed:
    folder = ROOT / "configs" / "clm" if config == "clm" else GOLDENS / "tree"
    name = "config" if config == "clm" else config
    return compose(Folders((folder,)), name, split_hydra_words(words).overrides)


@pytest.mark.parametrize("line", GOLDEN["lines"], ids=lambda line: " ".join(line["words"])[:60])
def test_the_tree_is_that_of_hydra(line: dict) -> None:
    tree = composed(line["config"], line["words"]).tree
    tree.pop("hydra", None)
    assert to_yaml(tree) == line["yaml"]
    assert resolved(tree) == line["tree"]


@pytest.mark.parametrize("line", GOLDEN["wrong"], ids=lambda line: line["words"][0])
def test_what_hydra_refuses_is_refused_here(line: dict) -> None:
    with pytest.raises(UserError, match=r"^\[hydra\] ") as caught:
        resolved(composed(line["config"], line["words"]).tree)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("max_stepz=3", "did you mean 'max_steps'?"),
        ("~max_stepz", "did you mean 'max_steps'?"),
        ("model.capacity_facto=1", "did you mean 'model.capacity_factor'?"),
        ("sched=CosinAnnealing", "did you mean 'CosineAnnealing'?"),
        ("+experiment=gbs256", "did you mean 'gbs256_tpu'?"),
        ("--cfgs", "did you mean '--cfg'?"),
        ("lr=${multipli:1,2}", "did you mean 'multiply'?"),
        ("lr=${max_stepz}", "did you mean 'max_steps'?"),
        ("experiment=gbs256_tpu", r"+experiment=gbs256_tpu"),
    ],
)
def test_errors_name_the_nearest(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(composed("clm", [word]).tree)
    assert hint in str(caught.value)


def test_a_key_is_given_once() -> None:
    with pytest.raises(UserError, match="lr is given twice: lr=1 and lr=2"):
        composed("clm", ["lr=1", "lr=2"])
