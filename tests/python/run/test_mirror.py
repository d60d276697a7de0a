"""Work directories that are mirrored to a storage: failed uploads, lost machines, rejected URLs."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fake_runs
from fake_engine import FakeEngine
from mudd_core import checkpoint
from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.storage import mapped, mirror_folder
from mudd_core.cli import main
from mudd_core.dist import Comm
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.store.best_step import best_step
from mudd_core.run.store.run_folder import RunFolder
from rank_runs import on_ranks
from tiny_run import CONFIG

URL = "faulty://bucket/run"
LOCAL = Path("runs/remote/bucket/run")


class Faulty(MemoryFileSystem):
    """A storage in memory that records the order of its uploads, and fails the uploads with the indices in `bad`."""

    protocol = "faulty"
    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012
    uploads: list[str] = []  # noqa: RUF012
    bad: set[int] = set()  # noqa: RUF012
    dead = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.replace("faulty://", "memory://")))

    def _count(self, path: str) -> None:
        Faulty.uploads.append(path)
        if len(self.uploads) in self.bad:
            raise OSError(f"upload {len(self.uploads)} was lost")

    def put_file(self, local: str, path: str, **_: Any) -> None:
        self._count(path)
        self.store_bytes(path, Path(local).read_bytes())

    def pipe_file(self, path: str, data: bytes, **_: Any) -> None:
        self._count(path)
        self.store_bytes(path, data)

    def store_bytes(self, path: str, data: bytes) -> None:
        super().pipe_file(path, data)

    def ls(self, path: str, detail: bool = True, **more: Any) -> Any:
        if self.dead:
            raise OSError("no route to host")
        return super().ls(path, detail=detail, **more)


@pytest.fixture(autouse=True)
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Faulty]]:
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    Faulty.store, Faulty.pseudo_dirs, Faulty.uploads, Faulty.bad = {}, [""], [], set()
    Faulty.dead = False
    monkeypatch.chdir(tmp_path)
    yield Faulty


def run(*words: str, **more: Any) -> str:
    with fake_runs.make(URL, None, *words, **more) as trainer:  # type: ignore[arg-type]
        return trainer.fit().final_hash


def there() -> dict[str, bytes]:
    return {name.removeprefix("/bucket/run/"): bytes(file.getbuffer()) for name, file in Faulty.store.items()}


def mirrored() -> None:
    """Check that the storage has the same files as this machine, byte for byte."""
    here = {
        file.relative_to(LOCAL).as_posix(): file.read_bytes()
        for file in LOCAL.rglob("*")
        if file.is_file() and file.name not in (".lock", "log.txt")
    }
    # TensorBoard's file names contain the time in seconds, so the files of a lost machine remain.
    assert {name: data for name, data in there().items() if name in here or "tensorboard" not in name} == here


def test_a_run_is_mirrored_each_manifest_last(tmp_path: Path) -> None:
    assert run("train.keep_last=2") == fake_runs.unbroken(tmp_path / "alone", "train.keep_last=2")
    mirrored()
    assert {name for name in there() if name.endswith("manifest.json")} == {
        f"checkpoints/step-{step}/manifest.json" for step in (15, 20)
    }
    for step in (5, 10, 15, 20):
        names = [name for name in Faulty.uploads if f"/step-{step}/" in name]
        assert names[-1].endswith("manifest.json") and len(names) > 1


def test_the_best_step_is_mirrored_and_goes_to_another_machine(tmp_path: Path) -> None:
    words = ("train.keep_last=1", "train.keep_best=true", "train.eval_every=2", "train.save_every=4")
    wanted = fake_runs.unbroken(tmp_path / "alone", *words)
    run(*words, "train.stop_at=11")
    shutil.rmtree("runs")
    assert run(*words) == wanted
    mirrored()
    steps = {
        int(name.split("/")[1].removeprefix("step-")) for name in there() if name.endswith("manifest.json")
    }
    best = best_step(RunFolder(LOCAL))
    assert best is not None and steps >= {best, 20}
    assert steps == set(checkpoint.list_steps(tmp_path / "alone" / "checkpoints"))


def test_another_machine_goes_on_from_the_storage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train.stop_at=7")
    shutil.rmtree("runs")
    assert run() == fake_runs.unbroken(tmp_path / "alone")
    assert "fetched step 7 from faulty://bucket/run" in capsys.readouterr().out
    assert fake_runs.rows_of(LOCAL) == fake_runs.rows_of(tmp_path / "alone")
    mirrored()


@pytest.mark.parametrize("machine", ["the same", "another"])
def test_any_upload_that_fails_is_made_good_by_the_next(
    machine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = fake_runs.unbroken(tmp_path / "alone")
    run()
    count = len(Faulty.uploads)
    # Upload 1 is the test upload of a start.
    for number in range(2, count, 5 if machine == "the same" else 9):
        Faulty.store, Faulty.pseudo_dirs, Faulty.uploads, Faulty.bad = {}, [""], [], {number}
        shutil.rmtree("runs")
        capsys.readouterr()
        if machine == "another":
            with contextlib.suppress(SaveError):
                run("train.stop_at=12")
            shutil.rmtree("runs")
        else:
            with contextlib.suppress(SaveError):  # no later upload can replace a failed last one
                assert run() == wanted
            if "was lost; the step is whole" in capsys.readouterr().err:
                assert '"event": "save failed"' in (LOCAL / "events.jsonl").read_text(), number
        assert run() == wanted, number
        mirrored()


def test_a_storage_that_stays_away_ends_the_run_with_74_and_no_step_is_lost(tmp_path: Path) -> None:
    Faulty.bad = set(range(12, 10**4))
    with pytest.raises(SaveError, match=r"was lost; the step is whole in"):
        run()
    assert sorted(path.name for path in (LOCAL / "checkpoints").iterdir()) == [
        "step-10",
        "step-15",
        "step-20",
    ]
    Faulty.bad = set()
    assert run() == fake_runs.unbroken(tmp_path / "alone")
    mirrored()


def test_a_damaged_step_there_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("train.stop_at=7")
    shutil.rmtree("runs")
    (shard, *_) = [name for name in Faulty.store if "/step-7/" in name and name.endswith("safetensors")]
    data = bytearray(Faulty.store[shard].getbuffer())
    data[-1] ^= 1
    Faulty().store_bytes(shard, bytes(data))
    assert run() == fake_runs.unbroken(tmp_path / "alone")
    told = capsys.readouterr().out
    assert "step 7 of faulty://bucket/run passed over" in told and "fetched step 5" in told


def test_a_rewind_takes_its_steps_back_from_the_storage(tmp_path: Path) -> None:
    words = ("train.max_skips=3", "train.save_every=5")
    engine = FakeEngine(bursting=frozenset({12}))
    with fake_runs.make(URL, engine, *words) as trainer:  # type: ignore[arg-type]
        assert trainer.fit().rewinds == 1
    mirrored()


def test_places_that_are_not_the_runs_are_refused(tmp_path: Path) -> None:
    Faulty().store_bytes("/bucket/run/thesis.tex", b"mine")
    with pytest.raises(UserError, match="holds other files"):
        run()
    assert not Path("runs").exists()
    Faulty.store = {}
    run("train.stop_at=7")
    identity = json.loads((LOCAL / "run.json").read_text())
    (LOCAL / "run.json").write_text(json.dumps({**identity, "run_id": "0" * 16}))
    with pytest.raises(UserError, match="contains another run"):
        run()
    (LOCAL / "remote.json").write_text('{"url": "gs://bucket/run"}')
    with pytest.raises(UserError, match="is the copy of 'gs://bucket/run'"):
        run()


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"dead": True}, "cannot be reached: no route"), ({"bad": {1}}, "cannot be written")],
)
def test_a_storage_that_does_not_answer_is_refused_before_anything_is_written(
    change: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in change.items():
        monkeypatch.setattr(Faulty, name, value)
    with pytest.raises(UserError, match=reason):
        run()
    assert not Path("runs").exists()


def test_storage_map_replaces_the_longest_prefix() -> None:
    mounts = "gs://b=/mnt/b/, gs://b/deep=/mnt/deep"
    assert mapped("gs://b/run", mounts) == "/mnt/b/run"
    assert mapped("gs://b/deep/run", mounts) == "/mnt/deep/run"
    assert mapped("gs://bucket/run", mounts) == "gs://bucket/run"
    with pytest.raises(
        UserError, match="expected URL=FOLDER, or several of them separated by commas, got '/mnt'"
    ):
        mapped("gs://b/run", "/mnt")
    with pytest.raises(UserError, match="a host and a path"):
        mirror_folder("gs://b/../../etc")


def test_commands_read_a_run_that_is_at_a_url(
    tmp_path: Path, tiny_text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    words = [f"--config={CONFIG}", "--workdir=local://bucket/run", *data]
    (tmp_path / "bucket").mkdir()
    assert main(["train", *words, "train.steps=2"]) == 0
    assert (tmp_path / "bucket" / "run" / "summary.json").is_file()
    assert "final hash" in (tmp_path / "bucket" / "run" / "log.txt").read_text()
    shutil.rmtree("runs/remote")
    assert main(["validate", "--workdir=local://bucket/run"]) == 0
    out, err = capsys.readouterr()
    assert "step 2: validation loss" in out and "fetched step 2" in err


def test_a_mapped_url_is_a_plain_folder(tmp_path: Path, tiny_text: Path) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}"]
    words = [f"--config={CONFIG}", "--workdir=gs://b/run", f"storage.map=gs://b={tmp_path / 'mnt'}", *data]
    assert main(["train", *words, "train.steps=1"]) == 0
    assert (tmp_path / "mnt" / "run" / "summary.json").is_file()
    assert not (tmp_path / "runs" / "remote").exists()


@pytest.mark.parametrize("bad", [False, True])
def test_the_first_of_several_ranks_mirrors_the_run(bad: bool, tmp_path: Path) -> None:
    Faulty.bad = set(range(12, 10**4)) if bad else set()

    def work(comm: Comm) -> Any:
        engine = FakeEngine()
        engine.comm = comm
        config = fake_runs.config_of()
        with Trainer(config, URL, comm=comm, assemble=fake_runs.fake_assembly(engine)) as trainer:
            try:
                return trainer.fit().final_hash
            except Exception as error:
                return getattr(error, "exit_code", error)

    found = on_ranks(work, 2)
    if bad:
        assert found == [74, 74]
    else:
        assert found == [fake_runs.unbroken(tmp_path / "alone")] * 2
        mirrored()


def test_a_plan_looks_at_the_url_of_the_work_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--config=mup/tiny.py", "--plan", f"--workdir={URL}"]
    assert main(words) == 0
    monkeypatch.setattr(Faulty, "dead", True)
    assert main(words) == 2
    assert "cannot be reached: no route to host" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_run_starts_from_weights_in_a_mounted_bucket(tmp_path: Path, tiny_text: Path) -> None:
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "train.steps=1"]
    assert main(["train", f"--config={CONFIG}", f"--workdir={tmp_path / 'mnt' / 'old'}", *data]) == 0
    words = [*data, "start.load_parameters_path=gs://b/old", f"storage.map=gs://b={tmp_path / 'mnt'}"]
    assert main(["train", f"--config={CONFIG}", f"--workdir={tmp_path / 'new'}", *words]) == 0
    assert f"started from {tmp_path / 'mnt' / 'old'}" in (tmp_path / "new" / "log.txt").read_text()
