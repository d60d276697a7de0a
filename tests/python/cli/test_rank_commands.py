"""Commands that read a run with several ranks: the output equals one process', also if the ranks shard the weights."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from exported_files import exported_files
from mpi_ranks import ENVIRONMENT, needs_mpi
from mudd_core.cli import main
from mudd_core.engine.model import Model
from mudd_core.run.loop import signals
from mudd_core.run.report import sample as sample_texts
from mudd_core.tools.export_weights import forms as export_forms
from places import ROOT
from rank_runs import by_threads, without_time
from tiny_run import TinyRun

MIXTURE = ("--config=mixtral/tiny.py", "model.d_model=64", "model.n_layer=2", "model.d_ff=128")
# Arguments, number of ranks, ranks per node.
MESHES = {
    "zero 1": ((), 2, 2),
    "zero 3 on a node": (("mesh.zero=3",), 2, 2),
    "zero 3 on four nodes": (("mesh.zero=3",), 4, 1),
    "expert 2 on two nodes": (("mesh.expert=2",), 4, 2),
}


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a Mixtral that one process has trained for a few steps on bytes."""
    folder = tmp_path_factory.mktemp("mixture") / "run"
    words = ("data.tokenizer=bytes", "train.steps=8", "train.seq_len=32", "eval.max_batches=3")
    made = TinyRun(folder, tiny_text, (*MIXTURE, *words, "sample.max_tokens=12"))
    return made.trained()


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    yield
    signals.release()  # set by a bakeoff


def words_of(run: TinyRun, command: str) -> list[str]:
    data = [f"data.path={run.text}", f"data.cache_dir={run.text.parent / 'cache'}"]
    common = [command, f"--workdir={run.workdir}", *data]
    if command == "sample":
        return [*common, "--prompt=ma", "--num-samples=2", "sample.temperature=0.9"]
    return common


@pytest.mark.parametrize("command", ["validate", "sample"])
@pytest.mark.parametrize("mesh", MESHES)
def test_ranks_print_what_one_process_prints(
    run: TinyRun, capsys: pytest.CaptureFixture[str], command: str, mesh: str
) -> None:
    words = words_of(run, command)
    assert main(words) == 0
    wanted = capsys.readouterr()
    more, world, node_size = MESHES[mesh]
    assert by_threads([*words, *more], world, node_size) == [0] * world
    found = capsys.readouterr()
    assert without_time(found.out) == without_time(wanted.out) and wanted.out
    assert found.err == wanted.err


@pytest.mark.parametrize("command", ["validate", "sample", "export"])
def test_a_run_that_so_many_ranks_cannot_read_starts_no_mpirun(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    to = [f"--to={tmp_path / 'out'}"] if command == "export" else []
    assert main([command, f"--workdir={run.workdir}", *to, "--ranks=3", "mesh.expert=2"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "[mesh] expert=2 does not divide the 3 ranks that were started" in line


def test_greedy_text_of_prompts_that_rank_0_reads(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "prompts"
    lines.write_text("ma\nto be\n")
    words = [*words_of(run, "sample")[:4], f"--prompt-lines={lines}", "sample.temperature=0"]
    assert main(words) == 0
    wanted = capsys.readouterr().out
    assert by_threads([*words, "mesh.zero=3"], 2, 1) == [0, 0]
    assert capsys.readouterr().out == wanted and wanted.count("---") == 1


@pytest.mark.parametrize("mesh", ["zero 3 on four nodes", "expert 2 on two nodes"])
def test_no_rank_holds_the_whole_model(run: TinyRun, monkeypatch: pytest.MonkeyPatch, mesh: str) -> None:
    held: list[tuple[bool, int]] = []
    made = Model.__init__

    def making(model: Model, *args: Any, **more: Any) -> None:
        made(model, *args, **more)
        if not more.get("booked_only") and model.comm is not None:
            held.append((model.store.holds_all, model.store.plane_bytes))

    monkeypatch.setattr(Model, "__init__", making)
    more, world, node_size = MESHES[mesh]
    assert by_threads([*words_of(run, "validate"), *more], world, node_size) == [0] * world
    whole = Model(mc.load_run(run.workdir).model.config, booked_only=True).store.plane_bytes
    assert len(held) == world and not any(all_of_it for all_of_it, _ in held)
    assert max(size for _, size in held) < (0.5 if "zero" in mesh else 0.75) * whole


@pytest.mark.parametrize("system", ["hf", "own"])
@pytest.mark.parametrize("mesh", ["zero 3 on a node", "zero 3 on four nodes", "expert 2 on two nodes"])
def test_an_export_by_ranks_writes_the_files_of_one_process(
    run: TinyRun, tmp_path: Path, capsys: pytest.CaptureFixture[str], mesh: str, system: str
) -> None:
    words = ["export", f"--workdir={run.workdir}", f"--system={system}", "--shard-mb=0"]
    words.append(f"data.cache_dir={run.text.parent / 'cache'}")
    more, world, node_size = MESHES[mesh]
    assert main([*words, f"--to={tmp_path / 'one'}", *more]) == 0  # reads the run that the mesh trained
    assert by_threads([*words, f"--to={tmp_path / 'many'}", *more], world, node_size) == [0] * world
    said = capsys.readouterr().out.splitlines()
    half = len(said) // 2
    assert [line.replace("one", "") for line in said[:half]] == [
        line.replace("many", "") for line in said[half:]
    ]
    files = [exported_files(tmp_path / name) for name in ("one", "many")]
    assert files[0] == files[1] and len(files[0]) > 1


@pytest.mark.parametrize("form", [(), ("--adapter", "--base=hub/name")])
def test_adapters_of_a_mixture_are_exported_by_ranks_that_share_out_its_experts(
    run: TinyRun, tmp_path: Path, form: tuple[str, ...]
) -> None:
    lora = ("tune.method=lora", "lora.rank=4", "lora.init=pissa", f"start.load_parameters_path={run.workdir}")
    made = TinyRun(tmp_path / "run", run.text, (*run.words, *lora, "train.frozen_dtype=bf16"))
    made.trained()
    words = ["export", f"--workdir={made.workdir}", f"data.cache_dir={run.text.parent / 'cache'}", *form]
    assert main([*words, f"--to={tmp_path / 'one'}"]) == 0
    assert by_threads([*words, f"--to={tmp_path / 'many'}", "mesh.expert=2"], 4, 2) == [0] * 4
    files = [exported_files(tmp_path / name) for name in ("one", "many")]
    assert files[0] == files[1] and len(files[0]) > 1


def test_a_mistake_is_printed_once_and_ends_all_ranks(
    run: TinyRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, says in (
        ([*words_of(run, "sample"), "--step=3"], "no checkpoint of step 3"),
        (
            [*words_of(run, "sample")[:4], "--prompt", "x" * 300],
            "[sample] prompt: expected at most 31 tokens",
        ),
        ([*words_of(run, "validate"), "mesh.expert=4"], "expert=4 does not divide the 2 ranks"),
        ([*words_of(run, "validate"), "train.batch_size=64"], "was trained with other values"),
    ):
        assert by_threads(words, 2, 1) == [2, 2]
        said = capsys.readouterr().err
        assert said.count(says) == 1, said


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        (("--workdir=runs/a", "--ranks=2"), "export --workdir=runs/a --to=exported --ranks=2"),
        (("runs/a", "--hosts=h", "--ranks", "4"), "export runs/a --to=exported --hosts=h --ranks=4"),
        (("small.py", "--ranks=2", "--to=x"), "export --config=small.py --to=x --ranks=2"),
    ],
)
def test_a_proposed_export_keeps_its_ranks(
    words: tuple[str, ...], proposed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", *words]) == 2
    assert capsys.readouterr().err.rstrip().endswith(proposed)


def test_a_stop_ends_the_ranks_together(
    run: TinyRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "stop_reason", lambda: "SIGUSR1")
    assert by_threads([*words_of(run, "validate"), "mesh.zero=3"], 2, 1) == [75, 75]
    assert capsys.readouterr().out == "stopped; the evaluation was dropped\n"
    assert by_threads([*words_of(run, "sample"), "mesh.zero=3"], 2, 1) == [75, 75]


# For each command: the function that hangs, and the rank.
HANGS: dict[str, tuple[Any, str, int]] = {
    "validate": (Model, "evaluate", 1),
    "sample": (sample_texts, "write_text", 1),
    "sample --interactive": (sample_texts, "write_text", 1),
    "export": (export_forms, "write_theirs", 0),
}


@pytest.mark.parametrize("command", HANGS)
def test_a_rank_that_hangs_ends_the_command(
    run: TinyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    place, name, rank = HANGS[command]
    works = getattr(place, name)

    def hangs(*args: Any, **more: Any) -> Any:
        comm = next(one for one in args if isinstance(one, Model)).comm
        if comm is not None and comm.rank == rank:
            time.sleep(2)
        return works(*args, **more)

    monkeypatch.setattr(place, name, hangs)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"ma\n")))
    words = words_of(run, command.split()[0])
    if command == "sample --interactive":
        words = [*words[:4], "--interactive"]
    elif command == "export":
        words = ["export", words[1], words[3], f"--to={tmp_path / 'out'}"]
    assert by_threads([*words, "mesh.zero=3", "dist.hang_timeout=0.5"], 2, 1) == [70, 70]


def test_a_bakeoff_trains_its_entries_by_ranks(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [
        "model.d_model=32",
        "model.n_layer=1",
        "train.seq_len=32",
        "train.batch_size=4",
        "eval.max_batches=2",
    ]
    data = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "data.tokenizer=bytes"]
    words = ["bakeoff", "--families=transformer_pp,gpt2", "--tokens=256", "--seeds=1", *small, *data]
    assert main([*words, f"--out={tmp_path / 'one'}"]) == 0
    assert by_threads([*words, f"--out={tmp_path / 'two'}", "mesh.zero=3"], 2, 1) == [0, 0]
    assert capsys.readouterr().out.count("transformer_pp, seed 0: 2 steps") == 2
    for name in ("transformer_pp-seed0", "gpt2-seed0"):
        hashes = [
            TinyRun(tmp_path / where / "runs" / name, tiny_text).summary()["final_hash"]
            for where in ("one", "two")
        ]
        assert hashes[0] == hashes[1]


@needs_mpi
@pytest.mark.parametrize("command", ["validate", "sample"])
def test_a_command_by_processes(run: TinyRun, capsys: pytest.CaptureFixture[str], command: str) -> None:
    words = words_of(run, command)
    assert main(words) == 0
    done = subprocess.run(
        [sys.executable, str(ROOT / "launch.py"), *words, "--ranks=2", "mesh.zero=3", "dist.node=rank"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **ENVIRONMENT},
    )
    assert done.returncode == 0, done.stderr
    assert without_time(done.stdout) == without_time(capsys.readouterr().out)
