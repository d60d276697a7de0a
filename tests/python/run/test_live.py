"""The output of fit(): one line on standard error; in a notebook a line and a curve that are updated in place."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from fake_engine import FakeEngine, fake_assembly
from fake_runs import config_of, make
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report import live
from mudd_core.run.report.progress import Progress
from places import ROOT


def code(tiny_text: Path) -> str:
    small = {
        "data.path": str(tiny_text),
        "data.cache_dir": str(tiny_text.parent / "cache"),
        "data.tokenizer": "bytes",
        "model.d_model": 16,
        "model.n_layer": 1,
        "model.n_head": 2,
        "model.d_ff": 16,
        "train.steps": 8,
        "optim.warmup_steps": 8,
        "train.batch_size": 2,
        "train.seq_len": 16,
        "train.eval_every": 4,
        "eval.max_batches": 1,
    }
    return f"import mudd_core as mc\ntrainer = mc.Trainer(mc.load_config('tiny.py', {small}))\n"


def test_a_script_shows_one_line_on_standard_error(tiny_text: Path, tmp_path: Path) -> None:
    for call, shown in (("fit()", 1), ("fit(progress=False)", 0), ("step()", 0)):
        script = code(tiny_text) + f"trainer.{call}\n"
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout == "", done.stderr
        lines = [line for line in done.stderr.splitlines() if re.match(r"step +\d+/8  loss", line)]
        assert len(lines) == shown and all(line.startswith("step 8/8") for line in lines), done.stderr


def test_a_terminal_rewrites_the_line(tiny_text: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    script = code(tiny_text) + "trainer.fit()\n"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path, stderr=theirs, text=True)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    assert process.wait(60) == 0
    assert shown.count(b"\r\x1b[Kstep") >= 2 and b"step 8/8" in shown
    assert shown.endswith(b"\r\n") and shown.count(b"\n") == 1


def test_a_progress_of_its_own_prints_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with Trainer(config_of(), progress=Progress(), assemble=fake_assembly(FakeEngine())) as trainer:
        trainer.fit()
    shown = capsys.readouterr()
    assert shown.err == "" and "step 20/20" in shown.out


class Handle:
    def __init__(self) -> None:
        self.views: list[Any] = []

    def update(self, view: Any) -> None:
        self.views.append(view)


def test_the_view_of_a_notebook_is_a_line_over_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Handle()

    def display(view: Any, *, display_id: bool) -> Handle:
        assert display_id
        handle.views.append(view)
        return handle

    monkeypatch.setattr(live, "in_notebook", lambda: True)
    monkeypatch.setattr(live, "SECONDS_BETWEEN", 0.0)
    monkeypatch.setitem(
        sys.modules, "IPython.display", type("Display", (), {"display": staticmethod(display)})
    )  # type: ignore[arg-type]
    with make(None) as trainer:
        trainer.fit()
    assert len(handle.views) == 21  # one per update, and the last one again
    html = handle.views[-1]._repr_html_()
    assert html.startswith("<pre>step 20/20") and "<svg" in html and ">validation<" in html
    assert repr(handle.views[-1]).startswith("step 20/20")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that runs cells in a fresh kernel and returns them with their outputs."""
    paths = [str(ROOT / "python"), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*cells: str) -> list[Any]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        place = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=120, resources=place, allow_errors=True).execute()
        found: list[Any] = notebook.cells
        return found

    return run


def test_a_real_notebook_shows_one_output_that_is_drawn_anew(
    kernel: Callable[..., list[Any]], tiny_text: Path
) -> None:
    new_cache = code(tiny_text).replace(str(tiny_text.parent / "cache"), "cache")
    cells = kernel(new_cache, "summary = trainer.fit()", "trainer.history['step'].tolist()")
    streams = [(o.name, o.text) for cell in cells for o in cell.outputs if o.output_type == "stream"]
    assert [name for name, _ in streams if name == "stderr"] == []  # a notebook would show it in red
    assert any("data: " in text for _, text in streams), streams
    shown = [output for output in cells[1].outputs if output.output_type != "stream"]
    assert [output.output_type for output in shown] == ["display_data"]
    assert shown[0].data["text/html"].startswith("<pre>step 8/8") and "<svg" in shown[0].data["text/html"]
    assert "step 8/8" in shown[0].data["text/plain"]
    assert not any("step 8/8" in output.get("text", "") for output in cells[1].outputs)
    assert cells[2].outputs[0].data["text/plain"] == str(list(range(1, 9)))


def test_an_interrupted_cell_keeps_the_trainer(kernel: Callable[..., list[Any]], tiny_text: Path) -> None:
    long = code(tiny_text).replace("'train.steps': 8", "'train.steps': 1000000")
    press = (
        "import os, signal, threading\n"
        "threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
        "trainer.fit()"
    )
    cells = kernel(
        long, press, "before = trainer.step_done; trainer.fit(3).step - before", "len(trainer.history)"
    )
    assert [output.get("ename") for output in cells[1].outputs if output.output_type == "error"] == [
        "KeyboardInterrupt"
    ]
    assert cells[2].outputs[-1].data["text/plain"] == "3"
