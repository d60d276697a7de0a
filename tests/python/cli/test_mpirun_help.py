"""mpirun's messages as launch.py prints them: without help blocks after a line in which a rank reports the reason."""

from __future__ import annotations

import pytest

from mudd_core.cli.mpirun_process import HelpFilter

RULE = "-" * 74 + "\n"
BLOCK = f"{RULE}mpirun detected that one or more processes exited\n\n  Exit code:    2\n{RULE}"
OURS = "error: [mesh] 3 ranks do not divide train.logical_shards=8\n"


def shown(text: str, size: int) -> str:
    """Return the printed part of a string that arrives in pieces of `size` bytes."""
    data, stream = text.encode(), HelpFilter()
    found = b"".join(stream.feed(data[i : i + size]) for i in range(0, len(data), size))
    return (found + stream.rest()).decode()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_blocks_behind_our_line_are_left_out(size: int) -> None:
    assert shown(f"a warning\n{OURS}{BLOCK}{BLOCK}more\n", size) == f"a warning\n{OURS}more\n"
    assert shown(f"[ranks] rank 1 is gone\n{BLOCK}", size) == "[ranks] rank 1 is gone\n"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_what_launch_says_itself_is_left_out(size: int) -> None:
    lost = f"{RULE}mpirun noticed that process rank 1 exited on signal 9 (Killed).\n{RULE}"
    told = "[ranks] at the end: rank 1 (another node), last message in step 5 (gather, mesh.fsdp)\n"
    assert shown(f"step 5\n{told}{lost}more\n", size) == "step 5\nmore\n"
    ended = lost.replace("9 (Killed)", "15 (Terminated)")
    assert shown(ended, size) == ended


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_reason_of_the_end_comes_last(size: int) -> None:
    verdict = (
        "[ranks] no progress for 3 s (dist.hang_timeout); look first at rank 1\n  rank 1 (b) in step 7\n"
    )
    for late in (
        "\nstop requested; a second signal leaves at once\n",
        "[a:29894] Read -1, expected 2033152, errno = 3\n[a:29894] Read -1, expected 66048, errno = 3\n",
        "[a:1] [[7846,0],0] ORTE_ERROR_LOG: Out of resource in file ../../orte/util/show_help.c at line 501\n",
        f"\n{BLOCK}\n",
    ):
        assert shown(verdict + late, size) == verdict
        assert shown(f"{verdict}{late}\nanother line\n", size).rstrip("\n").endswith("\nanother line")
    other = (
        "[a:1] Read -1, expected 66048, errno = 1\n[a:1] ORTE_ERROR_LOG: Not found in file x.c at line 5\n"
    )
    assert shown(verdict + other, size) == verdict + other


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_stop_that_was_asked_for_ends_without_blocks(size: int) -> None:
    primary = f"{RULE}Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n{RULE}"
    asked = "\nstop requested; a second signal leaves at once\n"
    ended = f"mpirun: Forwarding signal 10 to job\n{asked}{primary}{BLOCK.replace('    2', '    75')}"
    assert shown(ended, size) == asked
    assert shown(primary + BLOCK, size) == BLOCK


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_all_is_shown_where_no_rank_has_said_why(size: int) -> None:
    for text in (
        BLOCK,
        f"{BLOCK}{OURS}",
        f"{OURS}{RULE}a block without an end\n",
        "no end of line",
        "--",
        "err",
    ):
        assert shown(text, size) == text


def test_a_line_that_is_being_written_is_shown_at_once() -> None:
    stream = HelpFilter()
    assert stream.feed(b"step 3 of 8") == b"step 3 of 8"
    assert stream.feed(b"\rstep 4") == b"\rstep 4"
    assert stream.feed(b"\r---") == b"\r"
    assert stream.feed(b" not a rule\n") == b"--- not a rule\n"
