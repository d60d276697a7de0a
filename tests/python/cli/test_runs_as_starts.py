"""A run as the start of another one: of another size, and named as its text by mistake."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launched import launched
from tiny_run import CONFIG

CUT = ("train.stop_at=1", "train.batch_size=2", "data.cache_dir=cache")
START = "start.load_parameters_path"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with run.py, text.txt, other.txt and a run in runs/one. Tests remove what they add to runs/."""
    folder = tmp_path_factory.mktemp("starts")
    shutil.copy(CONFIG, folder / "run.py")
    for name in ("text.txt", "other.txt"):
        (folder / name).write_text(f"a line of {name}\n" * 600)
    done = launched(folder, "--config=run.py", "--workdir=runs/one", "data.path=text.txt", *CUT)
    assert done.returncode == 75, done.stderr
    return folder


def printed(error: str, place: int) -> list[str]:
    """Return the arguments of the command on a line of a message."""
    words = shlex.split(error.splitlines()[place])
    return words[next(i for i, word in enumerate(words) if word.endswith("launch.py")) + 1 :]


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (("model.n_layer=3",), "n_layer 2 there, 3 here;"),
        (("model.n_layer=1", "model.d_model=64"), "d_model 32 there, 64 here; n_layer 2 there, 1 here;"),
        (("model.vocab_size=300",), "vocab_size 257 there, 300 here;"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_weights_of_another_size_are_refused_with_both(
    here: Path, words: tuple[str, ...], sizes: str
) -> None:
    start = ("--config=run.py", "--workdir=runs/two", "data.path=other.txt", f"{START}=runs/one")
    done = launched(here, *start, *words, *CUT)
    assert done.returncode == 2 and f"in runs/one: {sizes}" in done.stderr
    line = printed(done.stderr, 1)
    further = [
        "--config=runs/one/config.json",
        "data.path=other.txt",
        f"{START}=runs/one",
        "--workdir=runs/one-2",
    ]
    assert line == further and not (here / "runs" / "two" / "run.json").exists()
    assert "token cache" not in done.stderr  # the text is not read first


def test_another_family_is_named(here: Path) -> None:
    done = launched(here, "--config=gpt2/tiny.py", "--workdir=runs/two", f"{START}=runs/one", *CUT)
    assert done.returncode == 2 and "in runs/one: family transformer_pp there, gpt2 here; " in done.stderr


def test_the_printed_command_trains_that_model_on_other_text(here: Path) -> None:
    start = ("--config=run.py", "--workdir=runs/two", "data.path=other.txt", f"{START}=runs/one")
    refused = launched(here, *start, "model.n_layer=3", *CUT)
    done = launched(here, *printed(refused.stderr, 1), "train.stop_at=1")
    assert done.returncode == 75 and "started from" in done.stdout, done.stderr
    shutil.rmtree(here / "runs" / "one-2")


def test_a_file_of_weights_has_no_config_to_name(here: Path) -> None:
    (file,) = (here / "runs" / "one" / "checkpoints").glob("*/model*.safetensors")
    shutil.copy(file, here / "weights.safetensors")
    words = ("data.path=other.txt", f"{START}=weights.safetensors", "model.n_layer=4")
    done = launched(here, "--config=run.py", "--workdir=runs/two", *words, *CUT)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and last.endswith("n_layer 2 there, 4 here; give the config of that model")


@pytest.mark.parametrize(
    "words",
    [
        ("data.path=runs/one",),
        ("data.path=runs/one/checkpoints",),
        ("data.path=runs/one", "--plan"),
        ("data.path=text.txt", "data.eval_path=runs/one", "data.pipeline=rows"),
    ],
    ids=" ".join,
)
def test_a_run_is_no_text_of_a_new_run(here: Path, words: tuple[str, ...]) -> None:
    done = launched(here, "--config=run.py", "--workdir=runs/two", *words)
    assert done.returncode == 2 and "which is a run. To train its model further" in done.stderr
    further = ["--config=runs/one/config.json", f"{START}=runs/one", "--workdir=runs/one-2"]
    assert printed(done.stderr, 1) == further and printed(done.stderr, 3) == ["--workdir=runs/one"]
    assert not (here / "runs" / "two" / "run.json").exists()


def test_the_command_data_refuses_it_too_and_python_names_calls(here: Path) -> None:
    done = launched(here, "data", "--config=run.py", "data.path=runs/one")
    assert done.returncode == 2 and "which is a run" in done.stderr
    code = "import mudd_core as mc; mc.Trainer(mc.load_config('run.py', {'data.path': 'runs/one'}))"
    said = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True).stderr
    assert (
        "mc.Trainer(mc.load_config('runs/one/config.json', {'start.load_parameters_path': 'runs/one'})"
        in said
    )
    assert said.endswith("To resume it:\n  mc.Trainer('runs/one')\n") and "launch.py" not in said


def test_a_model_of_hugging_face_is_no_text(here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text('{"model_type": "llama"}')
    done = launched(here, "--config=run.py", "--workdir=runs/two", "data.path=model")
    assert done.returncode == 2 and "[data.path] expected text files, got 'model', a model of" in done.stderr
    assert done.stderr.rstrip().endswith("import model --workdir=runs/model")
    assert not (here / "runs" / "two" / "run.json").exists()


def test_a_saved_run_that_trained_so_resumes(here: Path) -> None:
    text = here / "folder"
    text.mkdir()
    for number in range(8):
        (text / f"{number}.txt").write_text(f"line of file {number}\n" * 200)
    words = ("--config=run.py", "--workdir=runs/three", "data.path=folder", *CUT)
    assert launched(here, *words).returncode == 75
    for name in ("config.json", "run.json"):  # earlier versions accepted a run as text
        shutil.copy(here / "runs" / "one" / name, text / name)
    done = launched(here, *words[:-3], "train.batch_size=2", "data.cache_dir=cache", "train.stop_at=2")
    assert done.returncode == 75 and "resumes at step 1" in done.stdout, done.stderr
    new = launched(here, *words, "--workdir=runs/four")
    assert new.returncode == 2 and "which is a run" in new.stderr
