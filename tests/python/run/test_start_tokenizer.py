"""The tokenizer of a run that starts from another run's weights: copied, compared, and found by a resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mudd_core.cli.entry import main
from mudd_core.data.tokenizers.source import find_tokenizer
from mudd_core.run.build.start_tokenizer import same_ids
from mudd_core.run.store.folder_lock import FolderLock
from mudd_core.run.store.run_folder import SOURCE_TOKENIZER, RunFolder
from tiny_run import CONFIG

SMALL = (
    "train.steps=2",
    "train.eval_every=0",
    "train.save_every=0",
    "data.vocab_size=300",
    "eval.max_batches=1",
)


class Place:
    """A source run with a trained BPE, and another text."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder, folder / "cache"
        self.text, self.other, self.source = folder / "one.txt", folder / "two.txt", folder / "source"

    def run(self, name: str, *words: str, text: Path | None = None) -> int:
        data = (f"data.path={text or self.text}", f"data.cache_dir={self.cache}", "data.tokenizer=bpe")
        return main([f"--config={CONFIG}", f"--workdir={self.folder / name}", *data, *SMALL, *words])

    def tokenizer(self, name: str) -> str:
        found: str = json.loads((self.folder / name / "config.json").read_text())["data"]["tokenizer"]
        return found

    @property
    def start(self) -> str:
        return f"start.load_parameters_path={self.source}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("start"))
    place.text.write_text("".join(f"the {n} quick brown foxes jump over lazy dogs\n" for n in range(900)))
    place.other.write_text("".join(f"zwölf {n} Boxkämpfer jagen Viktor quer\n" for n in range(900)))
    with pytest.MonkeyPatch.context() as patch:  # the text is new, but its hash is recorded anyway
        patch.setattr("mudd_core.data.sources.listing.SETTLE_SECONDS", 0.0)
        assert place.run("source") == 0
    return place


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    """Return a copy of all files, whose saved paths also refer to the copy."""
    shutil.copytree(made.folder, tmp_path, dirs_exist_ok=True)
    saved = tmp_path / "source" / "config.json"
    saved.write_text(saved.read_text().replace(str(made.folder), str(tmp_path)))
    return Place(tmp_path)


def cached_tokenizer(place: Place, name: str) -> bytes:
    """Return the tokenizer.json of the token cache that a run trained on."""
    facts = json.loads((place.folder / name / "run.json").read_text())
    return (place.cache / facts["data"] / "tokenizer.json").read_bytes()


def test_another_text_is_read_with_the_tokenizer_of_the_source(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run("new", place.start, text=place.other) == 0
    assert f"the tokenizer of {place.source}" in capsys.readouterr().out
    assert cached_tokenizer(place, "new") == cached_tokenizer(place, "source")
    kept = Path(place.tokenizer("new"))
    assert kept == place.folder / "new" / "source-tokenizer.json" and kept.is_file()


def test_a_resume_by_the_same_command_finds_it_without_source_and_cache(place: Place) -> None:
    assert place.run("new", place.start, "train.stop_at=1", text=place.other) == 75
    shutil.rmtree(place.source)
    shutil.rmtree(place.cache)
    assert place.run("new", place.start, text=place.other) == 0
    assert place.run("new", place.start, "log.batches=true", text=place.other) == 0  # finished
    assert (
        main(["sample", f"--workdir={place.folder / 'new'}", "--prompt", "the", "sample.max_tokens=2"]) == 0
    )


def test_the_same_text_keeps_its_cache_and_config(made: Place) -> None:
    caches = {entry.name for entry in made.cache.iterdir()}
    assert made.run("same", made.start, "train.seed=5") == 0
    assert made.tokenizer("same") == "bpe" and {entry.name for entry in made.cache.iterdir()} == caches


def test_a_run_that_starts_from_such_a_run_has_the_tokenizer_too(place: Place) -> None:
    assert place.run("new", place.start, text=place.other) == 0
    start = f"start.load_parameters_path={place.folder / 'new' / 'checkpoints' / 'step-2'}"
    assert place.run("third", start) == 0
    assert cached_tokenizer(place, "third") == cached_tokenizer(place, "source")
    assert place.tokenizer("third") == str(place.folder / "third" / "source-tokenizer.json")


@pytest.mark.parametrize("name", ["bytes", "other.json"])
def test_a_named_tokenizer_with_other_ids_is_refused_before_anything_is_written(
    place: Place, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "other.json":
        assert place.run("other", text=place.other) == 0
        name = str(place.folder / name)
        Path(name).write_bytes(cached_tokenizer(place, "other"))
    assert place.run("new", place.start, f"data.tokenizer={name}") == 2
    told = capsys.readouterr().err
    assert f"[start] data.tokenizer: expected the tokenizer of the weights in {place.source}" in told
    assert f"got {name}" in told and "start.force=true" in told
    assert not (place.folder / "new").exists()
    code = place.run("new", place.start, f"data.tokenizer={name}", "start.force=true")
    assert (code, "expected shape" in capsys.readouterr().err) == (
        (2, True) if name == "bytes" else (0, False)
    )


def test_an_equal_tokenizer_by_another_name_is_taken(place: Place) -> None:
    file = place.folder / "again.json"
    file.write_text(json.dumps(json.loads(cached_tokenizer(place, "source")), indent=1))
    assert same_ids(find_tokenizer(str(file), 0), find_tokenizer(str(file), 0))
    assert place.run("new", place.start, f"data.tokenizer={file}") == 0
    assert place.tokenizer("new") == str(file)


def test_a_lost_tokenizer_is_refused_unless_one_is_named(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = place.folder / "kept.json"
    kept.write_bytes(cached_tokenizer(place, "source"))
    shutil.rmtree(place.cache)
    place.text.unlink()
    assert place.run("new", place.start, text=place.other) == 2
    told = capsys.readouterr().err
    assert "its tokenizer is not found" in told and "Set data.tokenizer" in told
    assert place.run("new", place.start, f"data.tokenizer={kept}", text=place.other) == 0


@pytest.mark.filterwarnings("ignore:.*not a checkpoint of mudd_core")
def test_weights_without_a_tokenizer_are_taken_with_a_warning(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.numpy import save_file

    from mudd_core.checkpoint import load_newest

    found = load_newest(place.source / "checkpoints")
    assert found is not None
    file = place.folder / "weights.safetensors"
    save_file({n: np.array(a) for n, a in found.tensors.items() if "/" not in n}, file)
    assert place.run("new", f"start.load_parameters_path={file}") == 0
    assert "names no tokenizer" in capsys.readouterr().err
    ids = ("data.pipeline=synthetic", "model.vocab_size=300")
    assert place.run("ids", f"start.load_parameters_path={file}", *ids) == 0
    assert "names no tokenizer" not in capsys.readouterr().err


def test_a_plan_counts_the_vocabulary_of_the_source(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.run("new", place.start, "data.vocab_size=400", "--plan", text=place.other) == 0
    assert "vocabulary 300" in capsys.readouterr().out
    assert place.run("new", place.start, "data.tokenizer=bytes", "--plan") == 2


def test_a_start_that_fails_removes_the_copy(tmp_path: Path) -> None:
    with FolderLock(RunFolder(tmp_path / "new")) as lock:
        lock.folder.source_tokenizer_file.write_text("{}")
    assert not (tmp_path / "new").exists()


def test_an_import_with_a_tokenizer_of_other_ids_is_refused(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    out, run = place.folder / "hf", f"--workdir={place.folder / 'imported'}"
    assert main(["export", f"--workdir={place.source}", f"--to={out}"]) == 0
    for name in ("bytes", "bpe"):
        assert main(["import", str(out), run, f"data.tokenizer={name}"]) == 2
        told = capsys.readouterr().err
        assert "expected the tokenizer of the weights" in told and name in told
    assert main(["import", str(out), run]) == 0
    start = f"start.load_parameters_path={place.folder / 'imported'}"
    assert place.run("new", start, text=place.other) == 0
    assert cached_tokenizer(place, "new") == (out / "tokenizer.json").read_bytes()
    assert place.tokenizer("new") == str(place.folder / "new" / SOURCE_TOKENIZER)
