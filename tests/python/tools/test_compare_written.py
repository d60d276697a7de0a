"""`compare` for runs whose logs are written here: unusual logs, the contents of the page, and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import mudd_core as mc
from compared_runs import Row, changed, compare, first_printed
from launched import launched
from mudd_core import cli
from mudd_core.base.regular_files import read_bytes
from mudd_core.base.types import JsonObject
from mudd_core.run.report.page.records import Records
from mudd_core.run.store import metrics
from mudd_core.run.store.metric_arrays import Metrics
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.compare.compared import ComparedRun, first_difference
from mudd_core.tools.compare.reading import read_run
from mudd_core.tools.compare.settings import machine_rows
from page_runs import update, validation, write_run

STEPS = 12


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with runs/base, runs/seed (other losses) and runs/batch (logged every third step)."""
    for name, every, word in (
        ("base", 1, ""),
        ("seed", 1, "train.seed=1"),
        ("batch", 3, "train.batch_size=16"),
    ):
        found = []
        for step in range(every, STEPS + 1, every):
            loss = 3.0 - step / 100 + (0.0 if name == "base" else 0.25)
            found.append(update(step, loss, batch_hash=f"{step:016x}"))
            found += [validation(step, loss + 0.5)] if step % 4 == 0 else []
        words = (f"train.steps={STEPS}", f"train.log_every={every}", *filter(None, [word]))
        started = {"event": "started", "machine": {"level": "avx2"}}
        write_run(tmp_path / "runs" / name, found, [started], *words)
    return tmp_path


def test_a_run_that_trains_and_one_of_an_earlier_version_are_compared(runs: Path) -> None:
    def old(found: list[Row]) -> None:
        del found[6:]
        for row in found:
            for name in ("batch_hash", "grad_norm", "peak_share", "accuracy"):
                row.pop(name, None)

    changed(runs, old)
    folder = runs / "runs" / "changed"
    (folder / "events.jsonl").unlink()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 7, "loss": 5.')  # an incomplete entry
    printed = compare(runs, "base", "changed")
    assert first_printed(printed) is None and "B: none, since the run has not ended" in printed
    assert re.search(r"^  level +avx2 +not recorded$", printed, re.MULTILINE)


def test_runs_without_validations_of_one_step_and_of_none_are_compared(runs: Path) -> None:
    def first_alone(found: list[Row]) -> None:
        del found[1:]

    changed(runs, first_alone)
    printed = compare(runs, "base", "changed")
    assert "|" not in printed and "validation, last" in printed and first_printed(printed) is None
    changed(runs, list.clear)
    printed = compare(runs, "base", "changed")
    assert "first difference of A and B: unknown\n  They have logged no common step.\n" in printed


def test_the_machine_of_steps_that_were_made_again_counts(tmp_path: Path) -> None:
    def event(name: str, step: int, level: str) -> JsonObject:
        return {"event": name, "step": step, "machine": {"level": level}}

    events = [
        {"event": "started", "machine": {"level": "avx2"}},
        event("resumed", 4, "amx_bf16"),
        event("resumed", 8, "avx512"),  # killed, then resumed from an earlier checkpoint
        event("resumed", 6, "portable"),
        event("resumed", 20, "avx2"),  # it logged no step
    ]
    updates = Metrics.of_rows({"step": step, "loss": 1.0} for step in range(1, 13))
    records = Records(RunFolder(tmp_path), mc.load_config("tiny.py"), updates, Metrics(), events)
    (row,) = machine_rows([ComparedRun("A", "a", records), ComparedRun("B", "b", records)])
    assert row == ["level", *["avx2 to step 4, then amx_bf16 to step 6, then portable"] * 2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "expected the folders of two runs or more, got none; type: "),
        (("runs/base",), "got runs/base alone; type: "),
        (
            ("runs/base", "runs/baes"),
            "runs/baes: expected the folder of a run, got a path that does not exist; did you ",
        ),
        (("runs/base", "runs"), "runs: expected the folder of a run, got a folder without config.json"),
        (("runs/base", "runs/base.log"), "runs/base.log: expected the folder of a run, got a file"),
        (
            ("runs/base", "./runs/base/"),
            "./runs/base/: expected another run, got runs/base again; name each once",
        ),
        (("runs/base", "runs/base/checkpoints/step-8"), "expected another run, got runs/base again"),
        (("runs/base", "runs/seed", "train.steps=3"), "train.steps=3: expected the folder of a run"),
        (("runs/base", "runs/seed", "--htlm=x"), "unknown option '--htlm"),
        (("runs/base", "runs/seed", "--out=x.html"), "unknown option '--out=x.html'; did you mean '--html'?"),
        (("runs/base",) * 9, "expected at most 8 runs, got 9"),
    ],
)
def test_mistakes_are_named_on_one_line(
    runs: Path,
    words: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(runs)
    (runs / "runs" / "base.log").touch()
    (runs / "runs" / "base" / "checkpoints" / "step-8").mkdir(parents=True)
    assert cli.main(["compare", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1) and err.startswith("error: [compare] ") and said in err, err


def test_the_page_has_all_curves_and_loads_nothing(runs: Path) -> None:
    done = launched(runs, "compare", "runs/base", "runs/seed", "runs/batch", "--html=compared.html")
    assert (done.returncode, done.stdout, done.stderr) == (0, "page  compared.html\n", "")
    page = (runs / "compared.html").read_text("utf-8")
    assert len(page) < 1_000_000 and not re.search(r"(src|href)=\W?(http|//)|url\(|@import", page)
    for text in ("Training loss", "Validation loss", "A base", "B seed", "C batch", "train.seed"):
        assert text in page
    assert "First difference of A and B: step 1" in page


@pytest.mark.parametrize(
    "words", [("runs/base", "runs/seed", "--html"), ("--html", "runs/base", "runs/seed")]
)
def test_html_alone_has_a_default_name(words: tuple[str, ...], runs: Path) -> None:
    done = launched(runs, "compare", *words)
    assert (done.returncode, done.stdout) == (0, "page  compare.html\n"), done.stderr
    assert "runs/seed" in (runs / "compare.html").read_text("utf-8")


def test_values_of_different_steps_are_marked(runs: Path) -> None:
    (runs / "runs" / "seed" / "checkpoints" / "step-6").mkdir(parents=True)
    lines = launched(runs, "compare", "runs/base", "runs/seed/checkpoints/step-6").stdout.splitlines()
    (row,) = [i for i, line in enumerate(lines) if line.startswith("  training, last *")]
    assert lines[row + 1].split()[:3] == ["at", "step", "12"] and lines[row + 1].split()[3] == "6"
    assert "  * The runs have these values at different steps." in lines
    same = launched(runs, "compare", "runs/base", "runs/seed").stdout
    assert "training, last" not in same


def test_text_of_a_run_is_never_read_as_html(runs: Path) -> None:
    hostile = "<script>alert(1)"  # without a slash, so that it can be a name
    changed(runs, lambda found: None)
    file = runs / "runs" / "changed" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps(config | {"name": hostile}))
    done = launched(runs, "compare", "runs/base", "runs/changed", "--html", "hostile.html")
    assert done.returncode == 0, done.stderr
    page = (runs / "hostile.html").read_text("utf-8")
    assert hostile not in page and "&lt;script&gt;alert(1)" in page


def test_help_names_the_arguments(runs: Path) -> None:
    done = launched(runs, "compare", "--help")
    assert (
        done.returncode == 0 and "--html FILE" in done.stdout and "compare runs/one runs/two" in done.stdout
    )


def test_the_best_validations_and_an_end_by_patience_are_marked(tmp_path: Path) -> None:
    found = [
        *(update(step) for step in range(1, 13)),
        validation(4, 2.5),
        validation(8, 3.0),
        validation(12, 2.75),
    ]
    for name in ("runs", "going"):
        write_run(tmp_path / name, found)
    ending = {"step": 12, "stopped": None, "final_hash": "00", "out_of_patience": True}
    ending |= {"best_step": 4, "best_val_loss": 2.5}
    (tmp_path / "runs" / "summary.json").write_text(json.dumps(ending))
    printed = compare(tmp_path, "./runs", "./going")
    assert re.search(r"A .* out of patience, step 12 of", printed), printed
    assert re.search(r"B .* step 12 of", printed) and printed.count("out of patience") == 1
    assert re.search(r"validation, best +2.500000 +2.500000 +\+0.000000\n +at step +4 +4\n", printed), printed
    assert launched(tmp_path, "compare", "runs", "going", "--html=page.html").returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert '"name":"A runs, best","color":0,"values":[2.5],"steps":[4]' in page
    assert '"name":"B going, best","color":1,"values":[2.5],"steps":[4]' in page


def test_metrics_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(
        tmp_path / "run", [update(1, batch_hash="0f"), update(2, batch_hash="1e"), validation(2, 2.5)]
    )
    opened: list[Path] = []

    def counted(path: Path, *, links: bool = True) -> bytes:
        opened.append(path)
        return read_bytes(path, links=links)

    monkeypatch.setattr(metrics, "read_bytes", counted)
    run = read_run("A", str(folder.path))
    assert run.batch_hashes == {1: "0f", 2: "1e"} and opened.count(folder.metrics_file) == 1
    assert first_difference(run, run).hashed and opened.count(folder.metrics_file) == 1
