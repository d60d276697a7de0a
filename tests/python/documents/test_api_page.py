"""docs/reference/api.md: every public name has a docstring and an example, and the examples run."""

from __future__ import annotations

import inspect
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import api_page
import mudd_core as mc
from mudd_core.config.fields import walk
from places import ROOT
from test_python_page import run_block

EXAMPLES = api_page.examples()
SMALL = {"n_layer": 1, "d_model": 16, "d_ff": 16, "n_head": 2}


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with documents and the run `runs/first`, which made four updates."""
    folder = tmp_path_factory.mktemp("api")
    shutil.copytree(tiny_text, folder / "my_text")
    fields = {"data.path": str(folder / "my_text"), "data.cache_dir": str(folder / "cache"), "model": SMALL}
    fields |= {"train.steps": 4, "train.seq_len": 128, "eval.max_batches": 1, "data.tokenizer": "bytes"}
    with mc.Trainer(mc.load_config("tiny.py", fields), folder / "runs" / "first") as trainer:
        trainer.fit(progress=False)
    return folder


def test_every_public_name_has_a_docstring_and_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(mc.__all__)
    assert [name for name in mc.__all__ if not inspect.getdoc(getattr(mc, name))] == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_gives_what_it_says(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    threads = mc.num_threads()
    try:
        run_block(EXAMPLES[name], {"mc": mc, "np": np}, tmp_path)
    finally:
        mc.set_num_threads(threads)


def test_the_python_of_the_page_for_users_of_pytorch_runs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    page = (ROOT / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    own = block.replace('"optim.lr": 1e-3}', f'"optim.lr": 1e-3, "data.path": "my_text", "model": {SMALL}}}')
    assert own != block
    names = {"mc": mc}
    run_block(own, names, tmp_path)
    assert names["trainer"].step_done == 4


def test_every_field_of_the_page_for_users_of_pytorch_exists() -> None:
    page = (ROOT / "docs" / "from-pytorch.md").read_text(encoding="utf-8")
    known = {info.path for info in walk(mc.Config())}
    named = set(re.findall(r"`((?:train|optim|model|data|mesh|eval)\.\w+)", page))
    methods = {f"model.{name}" for name in dir(mc.Model)}
    assert len(named & known) > 20 and named <= known | methods | {"train.py"}  # a script of nanoGPT


def test_a_signature_has_its_defaults_and_no_address() -> None:
    def called(self: object, a: int, *rest: str, b: str = "x", c: object = shutil.copy) -> bool:
        raise NotImplementedError

    assert api_page.signature("f", called) == "f(a: int, *rest: str, b: str = 'x', c: object = copy) -> bool"
    assert api_page.prose("a_b [T] `x_y` <z>") == r"a\_b \[T\] `x_y` \<z>"
