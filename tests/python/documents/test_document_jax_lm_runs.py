"""jax-lm-training: its training with records of ids, its names, several GPUs and a terminal."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import document_commands
import mudd_core as mc
from document_sizes import write_rows
from mpi_ranks import needs_mpi
from mudd_core.cli import job
from mudd_core.cli import main as cli
from mudd_core.config import GPT2Config
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.programs.detect import resolve
from mudd_core.programs.program import CommandLine, rows_of
from mudd_core.run.report.progress import Progress
from places import ROOT

LENGTH = 24
TRAIN = (
    "--model-config-name",
    "model",
    "--train-dataset-paths",
    "rows.train*",
    "--eval-dataset-paths",
    "rows.test*",
    "--batch-size",
    "4",
    "--num-epochs",
    "5",
    "--logging-frequency",
    "5",
)
OURS = ("train.threads=1", "data.cache_dir=cache")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with records of 24 ids and a GPT-2 for them."""
    path = tmp_path_factory.mktemp("jax_lm")
    write_rows(path, LENGTH)
    return path


def losses(text: str) -> list[str]:
    return [line.partition(" ETA")[0] for line in text.splitlines() if line.startswith(("[TRAIN]", "[EVAL]"))]


@needs_mpi
def test_several_ranks_by_the_documents_own_spelling(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Compare all of `python -m mudd_core.train ... --ranks=2` with the lines of one process."""
    monkeypatch.chdir(folder)
    assert cli(["jax_lm.train", *TRAIN, *OURS, "--model-save-dir", "one"]) == 0, capsys.readouterr().err
    one = capsys.readouterr()
    done = subprocess.run(
        [sys.executable, "-m", "mudd_core.train", *TRAIN, *OURS, "--model-save-dir", "two", "--ranks=2"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(losses(one.out)) > 5 and losses(done.stdout) == losses(one.out)
    # --num-epochs 5 requests five epochs, and the records determine the length of sequences.
    assert "but the text has only" not in one.err
    assert "note: the sequences of rows.train* have 24 ids, and the run uses this length" in one.err


@pytest.mark.parametrize("typed", [(), ("--max-sequence-length", "16"), ("--max-sequence-length", "32")])
def test_rows_keep_their_own_length(
    typed: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found = resolve(CommandLine("jax_lm.train", "", (*TRAIN, *typed), {}, {}))
    assert found is not None and found.config.train.seq_len == LENGTH
    assert [" ".join(typed) in note for note in found.notes if "rows.train*" in note] == [True]
    same = resolve(CommandLine("jax_lm.train", "", (*TRAIN, "--max-sequence-length", "24"), {}, {}))
    assert same is not None and same.config.train.seq_len == LENGTH and not same.notes


@pytest.mark.parametrize("given", [{}, {"embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.0}])
def test_a_folder_has_the_dropouts_of_its_config(
    given: dict[str, float], folder: Path, tmp_path: Path
) -> None:
    """Check the default for an absent key, which is 0.1 as in transformers."""
    shape = json.loads((folder / "model/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(shape | given))
    found = resolve(CommandLine("jax_lm.train", "", ("--model-config-name", str(tmp_path)), {}, {}))
    assert found is not None and isinstance(found.config.model, GPT2Config)
    model = found.config.model
    wanted = tuple(given.values()) or (0.1, 0.1, 0.1)
    assert (model.embd_dropout, model.attn_dropout, model.resid_dropout) == wanted


# The published models' numbers of parameters.
SIZES = {
    "distilgpt2": 81_912_576,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}


@pytest.mark.parametrize("name", SIZES)
def test_the_hubs_names_have_their_shape(name: str) -> None:
    for known in (name, f"{'distilbert' if name == 'distilgpt2' else 'openai-community'}/{name}"):
        found = resolve(CommandLine("jax_lm.train", "", ("--model-config-name", known), {}, {}))
        assert found is not None and isinstance(found.config.model, GPT2Config)
        model = found.config.model
        assert (model.embd_dropout, model.attn_dropout, model.resid_dropout) == (0.1, 0.1, 0.1)
        assert mc.Model(model, booked_only=True).n_parameters == SIZES[name]


def test_ranks_start_the_module_that_was_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the program of the ranks: with `python -m mudd_core.train` its own file must not be added to argv again."""
    main = sys.modules["__main__"]
    monkeypatch.setattr(sys, "argv", [str(ROOT / "python/mudd_core/train.py"), "jax_lm.train"])
    monkeypatch.setattr(main, "__spec__", object(), raising=False)
    assert job.program() == [sys.executable, "-m", "mudd_core"]
    monkeypatch.setattr(sys, "argv", [str(ROOT / "launch.py")])
    monkeypatch.setattr(main, "__spec__", None, raising=False)
    assert job.program() == [sys.executable, str(ROOT / "launch.py")]


def test_a_terminal_shows_the_progress_line_between_the_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    found = resolve(CommandLine("jax_lm.train", "", (*TRAIN, *OURS), {}, {}))
    assert found is not None
    config = mc.config.from_dict(mc.config.to_dict(found.config) | {"name": "shown"})
    config = mc.config.apply_overrides(config, mc.config.split_words(["log.style=jax_lm"], config))
    printed = {}
    for live in (True, False):
        errors = Terminal() if live else io.StringIO()
        lines = io.StringIO()
        monkeypatch.setattr(sys, "stderr", errors)
        with mc.Trainer(config, None, progress=Progress(lines)) as trainer:
            trainer.fit()
        printed[live] = lines.getvalue()
        shown = errors.getvalue()
        assert ("\r\x1b[Kstep " in shown) == live and ("tok/s  ETA" in shown) == live
        assert shown == "" or shown.endswith("\r\x1b[K")  # removed before the last lines
    assert losses(printed[True]) == losses(printed[False]) != []
    assert "step  " not in printed[True] and "\x1b" not in printed[True]


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["jax_lm.train", "--help"], ["clm", "--help"]):
        assert cli(words) == 0
        shown = capsys.readouterr().out
        grammar = "jax_lm" if words[0] == "jax_lm.train" else "hydra"
        for name in rows_of(grammar):
            assert f"  --{name.replace('_', '-')} " in shown if grammar == "jax_lm" else f"  {name}=" in shown
        assert max(map(len, shown.splitlines())) <= 100
    assert ("--devices" in shown) and "usage: python3 launch.py clm key=value" in shown


def test_both_commands_to_the_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run both commands exactly; files with the commands' names make them small, and WANDB_MODE disables the
    tracker.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    rng = random.Random(4)
    lines = [" ".join(rng.choice(("un", "deux", "trois")) for _ in range(200)) for _ in range(24)]
    Path("wikitext").mkdir()
    for split, part in (("train", lines), ("test", lines[:16])):
        Path(f"wikitext/wiki.{split}.txt").write_text("\n".join(part) + "\n")
    Path("gpt2").mkdir()
    Path("gpt2/tokenizer.json").write_bytes(train_bpe(["\n".join(lines).encode()], 1, 259))
    shape = {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 16,
        "n_head": 2,
        "n_positions": 256,
        "vocab_size": 259,
    }
    Path("gpt2/config.json").write_text(json.dumps(shape))
    preprocess, train = (command.words for command in document_commands.commands("jax_lm"))
    assert cli(["preprocess", *preprocess]) == 0, capsys.readouterr().err
    test = (
        "--dataset-name",
        "wikitext",
        "--dataset-split-type",
        "test",
        "--output-path",
        "dataset/wikitext.test",
    )
    assert cli(["preprocess", *test]) == 0, capsys.readouterr().err
    assert cli(["jax_lm.train", *train]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert (
        len(losses(told)) == 5 and "save checkpoint to artifacts/" in told
    )  # each epoch ends with a validation
    assert json.loads(Path("artifacts/config.json").read_text())["train"]["seq_len"] == 256
