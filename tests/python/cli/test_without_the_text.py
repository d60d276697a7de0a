"""Commands that neither train nor validate need neither the text of a run nor its token cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core as mc
from launched import launched
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.config import TransformerPPConfig
from mudd_core.interop import export_original
from tiny_run import CONFIG

TRAINED = (
    f"--config={CONFIG}",
    "--workdir=run",
    "data.path=text.txt",
    "data.cache_dir=cache",
    "data.tokenizer=bpe",
    "data.vocab_size=300",
    "train.steps=2",
    "train.batch_size=2",
)
SAMPLE = ("sample", "run", "--prompt=a line", "--max-tokens=4")


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Return a folder with a run of a BPE vocabulary, its text and its token cache."""
    (tmp_path / "text.txt").write_text("".join(f"line {i} of a text\n" for i in range(900)))
    done = launched(tmp_path, *TRAINED)
    assert done.returncode == 0, done.stderr
    return tmp_path


def test_a_run_is_read_without_text_and_cache(trained: Path) -> None:
    before = launched(trained, *SAMPLE)
    (trained / "text.txt").unlink()
    shutil.rmtree(trained / "cache")
    after = launched(trained, *SAMPLE)
    assert (after.returncode, after.stdout) == (0, before.stdout) and "a line" in after.stdout
    for words in (
        ("report", "run"),
        ("report", "run", "--html=page.html"),
        ("export", "--workdir=run", "--to=out"),
    ):
        done = launched(trained, *words)
        assert done.returncode == 0, done.stderr
    assert launched(trained, "validate", "run").returncode == 2  # it needs the text
    assert not (trained / "cache").exists()


def test_a_lost_tokenizer_is_built_again_by_the_printed_command(trained: Path) -> None:
    before = launched(trained, *SAMPLE)
    shutil.rmtree(trained / "cache")
    for file in (trained / "run").glob("tokenizer*"):  # earlier versions kept it in the token cache alone
        file.unlink()
    done = launched(trained, *SAMPLE)
    assert done.returncode == 2 and "build the token cache again from its text" in done.stderr
    line = done.stderr.splitlines()[-1].split()
    assert line[-2:] == ["data", "--workdir=run"]
    assert launched(trained, *line[-2:]).returncode == 0
    assert launched(trained, *SAMPLE).stdout == before.stdout


def test_an_import_is_used_without_the_text_of_a_training(tmp_path: Path) -> None:
    shape = TransformerPPConfig(vocab_size=257, max_seq_len=16, d_model=8, n_layer=1, n_head=2, d_ff=8)
    settings, weights = export_original("hf", mc.Model(shape))
    write_folder(tmp_path / "hf", settings, weights, shard_bytes=1 << 20)
    words = ("import", "hf", "--workdir=run", "--tokenizer=bytes", "data.cache_dir=cache")
    done = launched(tmp_path, *words)
    assert done.returncode == 0 and "recipe" not in done.stdout + done.stderr
    for words in (
        ("sample", "run", "--prompt=a", "--max-tokens=2"),
        ("report", "run"),
        ("report", "run", "--html=page.html"),
        ("export", "--workdir=run", "--to=out"),
    ):
        done = launched(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    code = "import mudd_core as mc; print(mc.load_run('run').generate('a', max_tokens=2))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "cache").exists() and not (tmp_path / "runs").exists()
