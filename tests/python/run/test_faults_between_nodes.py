"""Faults of ranks that exchange messages instead of sharing memory: a stopped rank, a broken link, failed copies."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mpi_ranks import needs_mpi, ranks_of
from places import ROOT
from rank_faults import run_of
from tiny_run import CONFIG, MIXTURE, TinyRun

sys.path[:0] = [str(ROOT / "bench")]

from two_nodes import TwoNodes  # noqa: E402

pytestmark = needs_mpi
ENDLESS = ("train.steps=100000", "train.save_every=100000", "train.eval_every=100000")


@pytest.mark.parametrize(
    ("config", "words"), [(CONFIG, ()), (CONFIG, ("mesh.zero=3",)), (MIXTURE, ("mesh.expert=2",))]
)
def test_a_stopped_rank_of_another_node_is_named(
    tiny_text: Path, tmp_path: Path, config: Path, words: tuple[str, ...]
) -> None:
    run = run_of(
        tmp_path / "run",
        tiny_text,
        "--ranks=2",
        "dist.node=rank",
        "dist.hang_timeout=2",
        *words,
        *ENDLESS,
        config=config,
    )
    process = run.start()
    run.wait_for_step(process, 5)
    stopped = time.monotonic()
    os.kill(ranks_of(run)[1], signal.SIGSTOP)
    assert process.wait(20) == 70, run.tail
    assert time.monotonic() - stopped < 10
    report = run.output[run.output.index("no progress for 2 s") :]
    assert "look first at rank 1 (another node), last message in step" in report, run.tail
    assert "rank 0 (" in report, run.tail


@pytest.mark.parametrize("words", [("mesh.zero=3",), ("mesh.zero=1",)])
def test_a_killed_rank_of_another_node_is_named_with_its_last_message(
    tiny_text: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", "dist.node=rank", *words, *ENDLESS)
    process = run.start()
    run.wait_for_step(process, 5)
    killed = time.monotonic()
    os.kill(ranks_of(run)[1], signal.SIGKILL)
    assert process.wait(20) == 137, run.tail
    assert time.monotonic() - killed < 5
    said = re.findall(
        r"^\[launch\] rank 1 on \S+ was ended by SIGKILL .*, last heard from in step \d+ "
        r"\((?:verdict|(?:reduce|gather), mesh\.fsdp)\);",
        run.output,
        re.MULTILINE,
    )
    assert len(said) == 1 and "at the end" not in run.output and "exited on signal" not in run.output, (
        run.tail
    )


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[TwoNodes | None]:
    """Return two nodes joined by a link; None without `ip` or the right to create namespaces."""
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(TwoNodes(tmp_path))
        except (OSError, subprocess.CalledProcessError):
            yield None


def test_a_cut_link_ends_the_job(nodes: TwoNodes | None, tiny_text: Path, tmp_path: Path) -> None:
    """Cut the link between two nodes.

    If no link can be created, stop the other rank: to the waiting rank it is just as silent.
    """
    words = (f"--hosts={','.join(nodes.hosts)}",) if nodes else ()
    run = run_of(
        tmp_path / "run", tiny_text, "--ranks=2", *words, "dist.node=rank", "dist.hang_timeout=5", *ENDLESS
    )
    if nodes:
        run.prefix = tuple(nodes.inside())
        run.environment = {**run.environment, **nodes.environment()}
    process = run.start()
    try:
        run.wait_for_step(process, 5)
        cut = time.monotonic()
        if nodes:
            nodes.cut()
        else:
            os.kill(ranks_of(run)[1], signal.SIGSTOP)
        assert process.wait(30) == 70, run.tail
        assert time.monotonic() - cut < 10, run.tail  # twice the time limit
    finally:
        process.kill()
    assert "the next one is awaited" in run.output, run.tail
    assert not nodes or "the ranks have ended but mpirun has not, so it is killed" in run.output


REFUSE = """
import ctypes, os, struct, sys
# A seccomp filter: process_vm_readv and process_vm_writev fail with EPERM, as in a container that forbids them.
def line(code, yes, no, k): return struct.pack("HBBI", code, yes, no, k)
program = b"".join((line(0x20, 0, 0, 0), line(0x15, 2, 0, 310), line(0x15, 1, 0, 311),
                    line(0x06, 0, 0, 0x7FFF0000), line(0x06, 0, 0, 0x00050001)))
lines = ctypes.create_string_buffer(program, len(program))
class Filter(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("lines", ctypes.c_void_p))
libc = ctypes.CDLL(None, use_errno=True)
wanted = Filter(len(program) // 8, ctypes.addressof(lines))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(wanted)) == 0, ctypes.get_errno()
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("node", ["host", "rank"])
def test_ranks_run_where_the_kernel_refuses_copies_between_processes(
    whole: TinyRun, tiny_text: Path, tmp_path: Path, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "run", tiny_text, "--ranks=2", f"dist.node={node}")
    run.prefix = (sys.executable, "-c", REFUSE)
    run.environment = {k: v for k, v in run.environment.items() if "single_copy" not in k}
    run.finished()
    assert "btl_vader_single_copy_mechanism none" in (run.workdir / "log.txt").read_text(), run.tail
    assert run.same_as(whole)
