"""The exact training commands of MUDDFormer's and TokenFormer's documents, each in a fresh process.

A test adds M_ variables and files: sizes, data, a tokenizer in HF_HOME, and a gcsfs.py whose buckets are folders.
Folders in the documents (/data/, /tmp/gcsfuse, /home/xxx) are replaced by folders of the test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import document_commands
from document_sizes import texts, write_lines, write_records
from hub_cache import put_tokenizer
from mudd_core.checkpoint import list_steps
from mudd_core.data.tokenizers.bpe_training import train_bpe
from test_maxtext_evaluation import TINY
from tiny_run import ROOT

MUDDFORMER = document_commands.commands("muddformer")
TOKENFORMER = document_commands.commands("tokenformer")
# Settings that these two documents leave to files and classes; TokenFormer's commands set steps, batches and slots.
LEFT_OUT = ("M_STEPS", "M_LEARNING_RATE_SCHEDULE_STEPS", "M_EVAL_INTERVAL", "M_CHECKPOINT_PERIOD")
OF_MUDDFORMER = {name: value for name, value in TINY.items() if name not in LEFT_OUT}
OF_TOKENFORMER = {
    "M_VOCAB_SIZE": "300",
    "M_BASE_EMB_DIM": "16",
    "M_BASE_NUM_QUERY_HEADS": "2",
    "M_BASE_NUM_KV_HEADS": "2",
    "M_HEAD_DIM": "8",
    "M_BASE_NUM_DECODER_LAYERS": "1",
    "M_MAX_TARGET_LENGTH": "32",
    "M_EPOCH": "1",
    "OMP_NUM_THREADS": "1",
}
BUCKETS = """
from fsspec.implementations.local import LocalFileSystem

class GCSFileSystem(LocalFileSystem):
    protocol = ("gs", "gcs")
    @classmethod
    def _strip_protocol(cls, path):
        path = path.replace("gs://", {root!r} + "/")
        return super()._strip_protocol(path)
"""


def type_command(folder: Path, words: list[str], variables: dict[str, str]) -> str:
    """Return the output of the command, which must exit with 0."""
    ended = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def moved(words: tuple[str, ...], places: dict[str, str]) -> list[str]:
    """Return the arguments with the document's folders replaced."""
    result = list(words)
    for theirs, ours in places.items():
        result = [word.replace(theirs, ours) for word in result]
    return result


@pytest.mark.parametrize("number", range(len(MUDDFORMER)))
def test_a_command_of_muddformer(number: int, tmp_path: Path) -> None:
    """Train until the data end, validate and save; the same command then finds the finished run."""
    write_records(tmp_path / "records")
    command = MUDDFORMER[number]
    words = moved(command.words, {"/home/xxx/projects/muddformer/jax": str(tmp_path), "/data/": "records/"})
    plain = "model_name=Llama2Medium" in words  # without the keys of the connections
    sizes = {name: value for name, value in OF_MUDDFORMER.items() if not (plain and "_DYNAMIC_" in name)}
    printed = type_command(tmp_path, words, sizes)
    assert "the data have 9 batches (data.epochs=1): the run ends at step 9" in printed
    assert "completed step: 9," in printed and "Write step 9 eval loss: " in printed
    summary = json.loads((tmp_path / "output/summary.json").read_text())
    assert (summary["step"], summary["data_end"]) == (9, True) and summary["val_loss"] > 0
    assert list_steps(tmp_path / "output/checkpoints") == [9]
    assert (tmp_path / "output/tensorboard").is_dir()
    assert "is finished." in type_command(tmp_path, words, sizes)


def test_the_three_commands_of_tokenformer(tmp_path: Path) -> None:
    """Run them with a bucket; the second command grows the weights of the first."""
    library = tmp_path / "library"
    write_lines(tmp_path / "gcsfuse/openwebtext_arrayrecord/train-0.jsonl", texts(400))
    write_lines(tmp_path / "gcsfuse/openwebtext_arrayrecord/validation-0.jsonl", texts(160, seed=6))
    library.mkdir()
    (library / "gcsfs.py").write_text(BUCKETS.format(root=str(tmp_path / "buckets")))
    put_tokenizer(
        tmp_path / "home", "EleutherAI/gpt-neox-20b", train_bpe([" ".join(texts(60)).encode()], 1, 300)
    )
    paths = os.pathsep.join(filter(None, (str(library), os.environ.get("PYTHONPATH"))))
    variables = OF_TOKENFORMER | {"HF_HOME": str(tmp_path / "home"), "PYTHONPATH": paths}
    places = {"/tmp/gcsfuse": str(tmp_path / "gcsfuse")}
    for number, command in enumerate(TOKENFORMER):
        words = moved(command.words, places)
        (name,) = (word.removeprefix("run_name=") for word in words if word.startswith("run_name="))
        here = tmp_path / f"machine{number}"
        here.mkdir()
        printed = type_command(here, words, variables)
        run = tmp_path / "buckets/tokenformer_gcp" / name
        summary = json.loads((run / "summary.json").read_text())
        assert summary["data_end"] is True and summary["val_loss"] > 0
        (step,) = list_steps(run / "checkpoints")
        assert f"completed step: {step}," in printed and f"average loss after step={step}: " in printed
        assert ("576 slots of 2,140" in printed) == (number == 1)
        places.setdefault("checkpoints/590000/", f"checkpoints/{step}/")
