"""`sample`: stop strings, prompts from a file, the length of the output, and interactive prompts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from places import ROOT
from tiny_run import TinyRun
from typed_terminal import TypedTerminal

LONGEST = 40000  # tokens of an answer that the tests interrupt
WORDS = ("train.steps=40", "sample.max_tokens=200", "model.max_seq_len=64", "sample.temperature=0.4")


@pytest.fixture(scope="module")
def run(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the trained run `run`."""
    tiny = TinyRun(tmp_path_factory.mktemp("sampled") / "run", tiny_text, WORDS).finished()
    return tiny.workdir.parent


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "launch.py"), "sample", "run", *words]


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "TERM": "dumb"}


def sampled(folder: Path, *words: str, typed: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `sample run` in a fresh process. typed: standard input."""
    return subprocess.run(
        command(*words),
        cwd=folder,
        input=typed,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=120,
        check=False,
    )


def texts(folder: Path, *words: str, typed: bytes = b"") -> str:
    """Return the output of a sample that prints nothing to standard error."""
    done = sampled(folder, *words, typed=typed)
    assert (done.stderr, done.returncode) == (b"", 0), done.stderr
    return done.stdout.decode()


def test_a_text_ends_before_its_stop_text_and_keeps_its_other_characters(run: Path) -> None:
    whole = texts(run, "--prompt=ab", "--max-tokens=30").removesuffix("\n")
    stop, behind = whole[20:23], whole[2:]
    expected = "ab" + behind[: behind.index(stop)]
    assert texts(run, "--prompt=ab", "--max-tokens=30", f"--stop={stop}") == f"{expected}\n"
    two = texts(run, "--prompt=ab", "--max-tokens=30", "--stop", "never found", f"--stop={stop}")
    assert two == f"{expected}\n"
    assert (
        texts(run, "--prompt=ab", "--max-tokens=30", "--stop=ab!") == f"{whole}\n"
    )  # stop strings in the prompt are ignored


def test_each_line_is_a_prompt_and_each_text_has_the_next_seed(run: Path) -> None:
    (run / "lines.txt").write_bytes(b"ab\r\n\n")
    common = ("--max-tokens=5", "--stop=zzz")
    prompts = ["ab", "ab", "", ""]
    single = [
        texts(run, f"--prompt={prompt}", f"sample.seed={seed}", *common)
        for seed, prompt in enumerate(prompts)
    ]
    assert texts(run, "--prompt-lines=lines.txt", "--num-samples=2", *common) == "---\n".join(single)
    typed = (run / "lines.txt").read_bytes()
    assert texts(run, "--prompt-lines=-", "--num-samples=2", *common, typed=typed) == "---\n".join(single)


def test_a_pipe_of_prompts_is_answered_line_by_line(run: Path) -> None:
    (run / "two.txt").write_text("ab\nthe end\n")
    expected = texts(run, "--prompt-lines=two.txt", "--max-tokens=5", "--num-samples=2")
    for typed in (b"ab\nthe end", b"ab\r\nthe end\n\nnot read\n"):
        assert texts(run, "--interactive", "--max-tokens=5", "--num-samples=2", typed=typed) == expected
    assert texts(run, "--interactive") == ""


def test_a_line_that_is_no_prompt_does_not_end_the_others(run: Path) -> None:
    done = sampled(run, "--interactive", "--max-tokens=5", typed=b"x" * 5000 + b"\ncaf\xe9\nab\n")
    assert done.returncode == 0 and done.stdout.startswith(b"ab") and done.stdout.count(b"\n") >= 1
    errors = done.stderr.decode().splitlines()
    assert (
        len(errors) == 2
        and "got 5000; shorten it" in errors[0]
        and "UTF-8 text, got the byte 0xe9 at byte 3" in errors[1]
    )


def test_a_prompt_of_a_file_that_is_too_long_is_named_before_anything_is_written(run: Path) -> None:
    (run / "long.txt").write_text("ab\n" + "x" * 5000 + "\n")
    done = sampled(run, "--prompt-lines=long.txt")
    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        done.stderr.endswith(b"got 5000; shorten it (line 2 of long.txt)\n") and done.stderr.count(b"\n") == 1
    )


def test_the_default_length_needs_no_note(run: Path) -> None:
    assert len(texts(run, "--prompt=ab")) > 20  # shorter than the default length: texts() permits no note
    done = sampled(run, "--prompt=ab", "--max-tokens=200")
    assert done.returncode == 0 and b"sample.max_tokens=200" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--stop="], "--stop: expected a non-empty string"),
        (["--stop"], "--stop: expected TEXT after it"),
        (["--interactive", "--prompt=x"], "--interactive: expected it without --prompt, got both"),
        (["--prompt-lines=a", "--prompt-file=b"], "--prompt-lines: expected it without --prompt-file"),
        (["--prompt-lines=none.txt"], "the prompt in none.txt cannot be read"),
    ],
)
def test_options_that_contradict_each_other_are_named(run: Path, words: list[str], says: str) -> None:
    done = sampled(run, *words)
    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"") and says in told and told.count("\n") == 1, told


def test_a_stop_text_that_spells_a_line_feed_has_a_note(run: Path) -> None:
    done = sampled(run, "--stop", r"\n", "--max-tokens=3")
    assert done.returncode == 0 and b"a line feed is typed --stop=$'\\n'" in done.stderr


class Terminal(TypedTerminal):
    """A `sample run --interactive` with a user's keyboard input."""

    def __init__(self, folder: Path, *words: str) -> None:
        super().__init__(command("--interactive", *words), ENVIRONMENT, folder)

    def interrupt_prompt(self) -> None:
        """Press Ctrl-C until the program ends: CPython loses a signal between printing the prompt and waiting for a
        key.
        """
        while self.process.poll() is None:
            self.interrupt()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(1)


@pytest.mark.parametrize("end", ["\n", "\x04"])
def test_an_empty_line_or_the_end_of_a_terminal_is_the_end(run: Path, end: str) -> None:
    terminal = Terminal(run, "--max-tokens=5")
    terminal.mark()
    terminal.type("ab\n")
    terminal.wait(lambda shown: shown.endswith("> "))
    expected = texts(run, "--prompt=ab", "--max-tokens=5").replace("\n", "\r\n")
    assert terminal.shown == f"ab\r\n{expected}> "
    terminal.type(end)
    assert terminal.code() == 0


def test_ctrl_c_ends_an_answer_and_then_the_program(run: Path) -> None:
    terminal = Terminal(run, f"--max-tokens={LONGEST}", "sample.window=ring", "--num-samples=2")
    terminal.mark()
    for _ in range(2):
        terminal.type("ab\n")
        terminal.wait(lambda shown: len(shown) > 20)
        terminal.interrupt()
        terminal.mark()
    terminal.interrupt_prompt()
    terminal.wait(lambda shown: "interrupted" in shown)
    assert terminal.code() == 130


def test_a_second_ctrl_c_during_an_answer_ends_the_program(run: Path) -> None:
    script = (
        "import os, signal, sys; from mudd_core.cli import main, text_writer\n"
        "write = text_writer.write_now\n"
        "def twice(text):\n"
        "    write(text)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "text_writer.write_now = twice\n"
        "sys.exit(main(['sample', 'run', '--interactive']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=run,
        input=b"ab\n",
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")
