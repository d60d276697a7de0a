"""Helpers of the tests of MaxText's grammar."""

from __future__ import annotations

import pytest

from mudd_core.base.errors import UserError
from mudd_core.config.fields import walk
from mudd_core.programs import detect
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved

MUDD = ("run_name=r", "dataset_path=d", "model_name=MUDDLlama2Medium")


TOKENS = ("run_name=r", "dataset_type=grain", "grain_train_files=f*")


def resolved(file: str, *words: str, **environment: str) -> Resolved:
    found = detect.resolve(CommandLine(config=file, words=words, environment=environment))
    assert found is not None and found.grammar == "maxtext"
    return found


def field(found: Resolved, path: str) -> object:
    return next(info.value for info in walk(found.config) if info.path == path)


def refusal(file: str, *words: str, **environment: str) -> str:
    with pytest.raises(UserError) as error:
        resolved(file, *words, **environment)
    return str(error.value)


WORDS = ("run_name=r", "dataset_type=synthetic")


LLAMA = ("base_v2.yml", *WORDS, "model_name=LlamaMedium")
