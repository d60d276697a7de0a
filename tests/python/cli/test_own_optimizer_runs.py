"""Runs whose optimizer is a file of the user: resumes, copies, a changed file, mistakes, ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mpi_ranks import ENVIRONMENT, needs_mpi
from mudd_core.cli import main
from own_cases import ADAMW, MOMENTUM
from tiny_run import CONFIG, TinyRun

SHORT = ("train.steps=8", "train.save_every=2", "train.eval_every=4", "train.log_every=2")
START = "import mudd_core as mc\n"


def own_run(folder: Path, text: Path, name: str, *words: str) -> TinyRun:
    return TinyRun(folder, text, (f"optim.name={name}", *SHORT, *words))


def test_the_slow_update_is_said_once(tiny_text: Path, tmp_path: Path) -> None:
    whole = own_run(tmp_path / "whole", tiny_text, ADAMW).finished()
    assert whole.output.count("is a Python function: its updates take longer") == 1


def test_a_changed_file_is_named_and_the_copy_resumes(tiny_text: Path, tmp_path: Path) -> None:
    file, work = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(Path(ADAMW.partition(":")[0]).read_text())
    first = own_run(work, tiny_text, f"{file}:adamw", "train.stop_at=3")
    first.stopped()
    assert (work / "optim_name.py").read_text() == file.read_text()
    file.write_text(file.read_text().replace("beta1: float = 0.9", "beta1: float = 0.8"))
    changed = own_run(work, tiny_text, f"{file}:adamw")
    assert changed.finish() == 2
    assert re.search(
        rf"error: \[resume\] optim.name: {file} has changed since .*: SHA-256 \w+... then, ", changed.tail
    )
    way_out = re.search(r"resume with the run's copy: optim.name=(\S+),", changed.tail)
    assert way_out
    own_run(work, tiny_text, way_out[1]).finished()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"\[optim.name\] expected FILE.py:NAME, got '.*mine.py:mine': there is no file"),
        (START, r"mine.py: mine is missing; expected a function mine and mc.register_optimizer\(mine\)"),
        (
            START + "def mine(w, g):\n    pass\nmc.register_optimizer(mine)\n",
            r"mine.py, line 4: TypeError: .*expected update\(w, g, state, lr\), got mine\(w, g\)",
        ),
        (
            START + "def mine(w, g, state, lr):\n    return w[:5]\nmc.register_optimizer(mine)\n",
            r"\[optim.name\] .*mine.py:mine: new weights: expected float32\[\d+\], got float32\[5\]",
        ),
        (
            START + "def mine(w, g, state, lr):\n    w -= lrate * g\nmc.register_optimizer(mine)\n",
            r"\[optim.name\] .*mine.py, line 3: NameError: name 'lrate' is not defined",
        ),
    ],
)
def test_a_mistake_is_one_line(text: str | None, said: str, tiny_text: Path, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "mine.py").write_text(text)
    run = own_run(tmp_path / "run", tiny_text, f"{tmp_path}/mine.py:mine")
    assert run.finish() == 2, run.tail
    errors = [line for line in run.output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and re.search(said, errors[0]), run.tail
    assert "Traceback" not in run.output


@needs_mpi
@pytest.mark.parametrize("name", [ADAMW, MOMENTUM])
def test_two_ranks_have_the_bits_of_one(name: str, tiny_text: Path, tmp_path: Path) -> None:
    whole = own_run(tmp_path / "whole", tiny_text, name).finished()
    run = own_run(tmp_path / "run", tiny_text, name, "--ranks=2")
    run.environment = ENVIRONMENT
    run.finished()
    assert run.same_as(whole)


def in_groups(folder: Path, text: Path, file: Path | str, *words: str) -> TinyRun:
    groups = (
        f"{file}:momentum: blocks.*.ffn.*.w, lr_factor=0.5; {file}:adamw: head, beta1=0.5, weight_decay=0"
    )
    return TinyRun(folder, text, (f"optim.groups={groups}", *SHORT, *words))


def test_groups_of_a_file_resume_from_its_copy_with_the_bits_of_one_run(
    tiny_text: Path, tmp_path: Path
) -> None:
    source, file, work = Path(ADAMW.partition(":")[0]), tmp_path / "mine.py", tmp_path / "run"
    file.write_text(source.read_text())
    whole = in_groups(tmp_path / "whole", tiny_text, file).finished()
    assert whole.output.count("mine.py:momentum is a Python function: its updates take longer") == 1
    first = in_groups(work, tiny_text, file, "train.stop_at=3")
    first.stopped()
    assert (work / "optim_groups.py").read_text() == file.read_text() and not (
        work / "optim_name.py"
    ).exists()
    file.write_text(file.read_text().replace("0.95 * state", "0.5 * state"))
    changed = in_groups(work, tiny_text, file)
    assert changed.finish() == 2
    assert f"[resume] optim.groups: {file} has changed since" in changed.tail
    way_out = re.search(r"resume with the run's copy: optim.groups=(\S+):momentum,", changed.tail)
    assert way_out
    last = in_groups(work, tiny_text, way_out[1])
    last.finished()
    assert last.same_as(whole)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        (
            "a.py:one: head; b.py:two: embed",
            "optim.groups: expected the optimizers of one file, got a.py and b.py",
        ),
        ("a.py:one: head", r"\[optim.groups\] expected FILE.py:NAME, got 'a.py:one': there is no file a.py"),
        (f"{ADAMW}: head, beta3=1", "expected settings of lr_factor, weight_decay, beta1, beta2 for"),
        (f"{ADAMW}:", "expected patterns of names or role=<role> in the group"),
        (f"{MOMENTUM}: head", "momentum updates only matrices of blocks, got 'head'"),
        ("mine: head", "optimizers of adamw, adam_pax, .* or FILE.py:NAME, got 'mine: head'"),
    ],
)
def test_a_wrong_group_is_one_line(
    groups: str, said: str, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.py", "b.py") if "b.py" in groups else ():
        text = "".join(
            f"def {f}(w, g, state, lr):\n    pass\nmc.register_optimizer({f})\n" for f in ("one", "two")
        )
        (tmp_path / name).write_text(START + text)
    groups = groups.replace("a.py:", f"{tmp_path}/a.py:").replace("b.py:", f"{tmp_path}/b.py:")
    data = (f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}")
    assert main([f"--config={CONFIG}", "--plan", f"optim.groups={groups}", *data]) == 2
    error = capsys.readouterr().err.replace(f"{tmp_path}/", "")
    assert re.search(said, error) and "Traceback" not in error, error
