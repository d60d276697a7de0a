"""A reader types every command of the pages in order in a fresh clone; page_commands.txt says how each is tested.

The pages share the clone. So a page fails if it needs a folder that another page has used for another run.
"""

from __future__ import annotations

import re

import pytest

from page_command_rules import RUN, answer
from page_commands import commands
from reader import Reader, failed
from reader_files import write_c4

FOUND = commands()
PLACES = list(dict.fromkeys(typed.place for typed in FOUND if answer(typed).startswith(RUN)))
# Runs that must exist before a page: the run that docs/running/weights.md grows, and the third run of a comparison.
BEFORE = {
    "docs/running/weights.md": "python launch.py --config=tokenformer/124m --workdir=runs/tokenformer-124m "
    "data.tokenizer=bytes model.d_model=16 model.n_layer=1 model.n_head=2 train.steps=2 train.seq_len=32 "
    "eval.max_batches=1",
    "launch.py verify --help": "python launch.py export runs/tiny --to=exported --force",
    "launch.py compare --help": "python launch.py --config=tiny.py train.steps=2 train.log_every=1 train.seed=2 "
    "eval.max_batches=1 --workdir=runs/three",
}

# Replaces arguments of README's first run in Python: 50 updates, and two validations on all held-out text.
FEWER = "train_steps=10, eval_max_batches=1"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(tmp_path_factory.mktemp("clone") / "mudd_core")


@pytest.mark.parametrize("place", PLACES)
def test_the_commands_of_a_place_work_as_they_are_typed(place: str, reader: Reader) -> None:
    if place == "docs/coming-from/mlperf_moe.md":
        write_c4(reader.folder)
    if place in BEFORE:
        assert failed(reader.type([BEFORE[place]])) == ""
    fresh = place == "README.md" or "coming-from" in place
    assert (
        failed(reader.type_all([typed for typed in FOUND if typed.place == place], activated=not fresh)) == ""
    )


def test_python_of_the_readme_runs_as_it_is_typed(reader: Reader) -> None:
    """Run it in a fresh process, with the config, the text and the token cache of a new user.

    Only the updates and the validation batches are fewer.
    """
    typed = "\n".join(
        re.findall(r"```python\n(.*?)```", (reader.folder / "README.md").read_text(), re.DOTALL)
    )
    assert typed.count("train_steps=50") == 1
    (reader.folder / "first.py").write_text(typed.replace("train_steps=50", FEWER))
    (done,) = reader.type(["python first.py"])
    assert done.code == 0 and "step 10/10" in done.err, done
    assert 2.5 < float(done.out.splitlines()[0]) < 5, "bits per byte after 10 steps"
    assert (reader.folder / "runs" / "first" / "metrics.jsonl").is_file()


def test_the_readme_left_its_runs(reader: Reader) -> None:
    names = {path.name for path in (reader.folder / "runs").iterdir()}
    assert {"tiny", "small", "mine", "transformer_pp-small"} <= names
    assert (reader.folder / "step.json.gz").is_file()
