"""Fields as keywords: `mc.load_config("tiny.py", train_steps=50)`."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import keyword_stubs
import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config.keywords import keyword
from mudd_core.config.schema import fields_of_all


def test_each_field_has_one_keyword() -> None:
    names = [keyword(info.path) for info in fields_of_all()]
    assert len({*names}) == len(names)
    assert names and all(name.isidentifier() for name in names)


def test_keywords_are_set_after_the_overrides() -> None:
    config = mc.load_config(
        "tiny.py", {"train.steps": 10, "optim.lr": 0.5}, train_steps=50, data_path=Path("x")
    )
    assert (config.train.steps, config.optim.lr, config.data.path) == (50, 0.5, "x")
    assert mc.load_config("tiny.py", ["train.steps=10"], name="mine").name == "mine"


def test_keywords_set_fields_of_a_config_of_another_program() -> None:
    config = mc.load_config("clm", ["+model.random_init=true", "model.name_or_path=gpt2"], train_steps=7)
    assert config.train.steps == 7 and config.log.style == "moe"


def test_a_family_as_a_keyword_starts_a_new_model() -> None:
    model = mc.load_config("tiny.py", model_n_layer=3, model_family="gpt2").model
    assert (model.family, model.n_layer) == ("gpt2", 3)


@pytest.mark.parametrize(
    "fields, says",
    [
        ({"train_step": 5}, r"\[load_config\] unknown keyword 'train_step'; did you mean 'train_steps'\?"),
        ({"steps": 5}, "unknown keyword 'steps'; did you mean 'train_steps'?"),
        ({"max_steps": 5}, "did you mean 'train_steps'?"),
        ({"zzz": 5}, "unknown keyword 'zzz'; fields are section_field, such as train_steps=50"),
        ({"model_n_layers": 5}, "did you mean 'model.n_layer'?"),
        ({"train_steps": "50"}, "train.steps: expected a whole number, got '50'"),
        ({"train_steps": 1.5}, "train.steps: expected a whole number, got 1.5"),
        ({"train_save": 1}, "train.save: expected"),
        ({"train_steps": None}, "train.steps: expected a whole number, got None"),
        ({"optim_schedule": "cos"}, "optim.schedule: expected one of"),
        ({"train_steps": [50]}, r"train.steps: expected a whole number, got \[50\]"),
    ],
)
def test_wrong_keywords_are_explained(fields: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says.replace("?", r"\?") if "\\" not in says else says):
        mc.load_config("tiny.py", **fields)  # type: ignore[arg-type]  # the wrong uses that a checker reports


def test_the_stubs_are_current() -> None:
    for path, text in keyword_stubs.files().items():
        assert path.read_text(encoding="utf-8") == text, f"{path} is old; type ./run docs"


def test_the_stubs_have_all_arguments() -> None:
    for stub in keyword_stubs.STUBS:
        if not stub.inside:  # a stub with another overload has only a part of the arguments
            found = inspect.signature(inspect.unwrap(stub.function)).parameters.values()
            own = [one.name for one in found if one.kind is not one.VAR_KEYWORD and one.default is not ...]
            assert [line.partition(":")[0] for line in stub.head if line != "*"] == own, stub.file
