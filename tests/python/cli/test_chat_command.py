"""The command chat: lines of a pipe, a terminal with Ctrl-C, /save, and messages that have no answer."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import mudd_core as mc
from chat_cases import turns, write_jsonl
from mudd_core.cli import main
from mudd_core.cli.chat.history import History, Notes
from places import ROOT
from typed_terminal import TypedTerminal

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1", "TERM": "dumb"}
WORDS = ("--max-tokens=12", "--seed=2")
FAILING = (
    "{% for t in messages %}{% if 'boom' in t.content %}{{ raise_exception('no boom') }}{% endif %}{{ t.content }}\n"
    "{% endfor %}{{ enable_thinking }}"
)


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "launch.py"), "chat", "base", *words]


def piped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: bytes, *words: str
) -> tuple[int, str, str]:
    """Return exit code, output and errors of `chat base` with this standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
    code = main(["chat", "base", *words])
    return (code, *capsys.readouterr())


def test_each_line_of_a_pipe_has_one_line_as_answer(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, talk, expected = mc.load_run("base"), turns("the cat 1"), []
    for message in ("é\n", "fährt"):
        answer = run.chat(talk, max_tokens=12, seed=2)
        expected.append(answer)
        talk += [{"role": "assistant", "content": answer}, {"role": "user", "content": message.strip()}]
    capsys.readouterr()
    done = subprocess.run(
        command(*WORDS), input="the cat 1\r\né".encode(), capture_output=True, env=ENVIRONMENT, check=True
    )
    from mudd_core.base.show.printable import printable

    lines = [printable(answer.replace("\n", "\\n")) for answer in expected]
    assert done.stdout.decode().split("\n") == [*lines, ""] and all(expected)
    assert done.stderr.count(b"note: ") == done.stderr.count(b"\n") <= 1
    assert piped(monkeypatch, capsys, b"", *WORDS) == (0, "", "")


def test_commands_work_in_a_pipe_and_their_output_is_an_empty_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code, alone, _) = piped(monkeypatch, capsys, b"the cat 1\n", *WORDS)
    assert code == 0
    typed = b"the cat 1\n/save a.jsonl\n/reset\nthe cat 1\n/sav b\n /etc\n/quit\nnever\n"
    code, out, said = piped(monkeypatch, capsys, typed, *WORDS)
    lines = out.split("\n")
    assert code == 2 and lines[:5] == [alone[:-1], "", "", alone[:-1], ""] and len(lines) == 7 and lines[5]
    assert "appended the conversation to a.jsonl: 1 turn\nnew conversation\n" in said
    assert (
        "'/save'?; /help lists the commands, and a line that starts with a space is a message (line 5)"
        in said
    )
    assert len(json.loads(Path("a.jsonl").read_text())["messages"]) == 2


def test_a_line_without_an_answer_is_an_empty_line_and_the_talk_continues(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("fails.jinja").write_text(FAILING)
    words = ("--template=fails.jinja", "--max-tokens=3", "--seed=1")
    (code, alone, _) = piped(monkeypatch, capsys, b"the cat\nend\n", *words)
    assert code == 0 and alone.count("\n") == 2
    typed = b"the cat\n\n  \nboom\ncaf\xe9\n" + b"the " * 300 + b"\nend\n"
    code, out, said = piped(monkeypatch, capsys, typed, *words)
    first, second, _ = alone.split("\n")
    assert code == 2 and out.split("\n") == [first, "", "", "", "", "", second, ""]
    for line in (
        "no boom (line 4)",
        "expected UTF-8 text, got the byte 0xe9 at byte 3; if it is Latin-1, `iconv -f LATIN1 -t UTF-8` converts it "
        "(line 5)",
        "shorten them (line 6)",
        "line 2 is empty",
    ):
        assert line in said
    code, out, said = piped(monkeypatch, capsys, b"the cat\n", *words, "--no-think")
    assert code == 0 and out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--no-think"], "[chat] --no-think: expected a chat template with the variable enable_thinking"),
        (["--system=boom", "--template=fails.jinja"], "the template rejects it: no boom"),
        (["--template=broken.jinja"], "broken.jinja is no Jinja template"),
        (["--window=ring"], "[chat] sample.window: expected no value, got 'ring'"),
        (["--sytem=x"], "unknown option '--sytem'; did you mean '--system'?"),
        (["--max_new_tokens=5"], "type: python3 launch.py chat --workdir=base sample.max_tokens=5"),
        (["--temperature=-1"], "--temperature (sample.temperature): expected at least 0, got -1.0"),
        (["model.d_model=5"], "model.d_model: expected a field of sample, or train.threads"),
        (["--step=5"], "--step: expected a run, got the folder base of a model"),
        (["--ranks=2"], "--ranks: chat has no use of ranks"),
        (["--prompt=x"], "--prompt: expected the command sample, got chat"),
        (
            ["--system=x", "--template=strict.jinja"],
            "no system; leave --system out, and start the first message",
        ),
        (
            ["--template=deaf.jinja"],
            "deaf.jinja: expected a chat template that renders the messages, got one",
        ),
        (["--tokenizer=tik.model"], "not a sentencepiece model"),
    ],
)
def test_mistakes_are_named_before_the_first_message(
    here: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("fails.jinja").write_text(FAILING)
    Path("broken.jinja").write_text("{% if %}")
    Path("strict.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0].content }}"
    )
    Path("deaf.jinja").write_text("Hello")
    Path("tik.model").write_text("AAAA 0\n")
    code, out, said = piped(monkeypatch, capsys, b"the cat\n", *words)
    assert (
        (code, out) == (65 if "tik.model" in words[0] else 2, "") and says in said and said.count("\n") == 1
    ), said


def test_a_run_of_tune_talks_with_its_template_and_an_empty_answer_is_taken_back(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(here / "chat.jsonl", [{"messages": turns("the cat", "en")}] * 20)
    assert (
        main(
            ["tune", "--base=base", "--data=chat.jsonl", "--workdir=run", "train.epochs=30", "optim.lr=0.05"]
        )
        == 0
    )
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n"), encoding="utf-8"))
    assert main(["chat", "run", "--temperature=0"]) == 0
    assert capsys.readouterr().out == "en\n"
    # The export has the template of the run.
    assert main(["export", "run", "--to=own", "--merged", "--system=own"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n"), encoding="utf-8"))
    assert main(["chat", "own", "--temperature=0"]) == 0
    assert capsys.readouterr().out == "en\n"
    chat = mc.load_run("run").chat_with()
    notes = Notes()
    history = History(chat, mc.load_run("run").config.sample, "", {}, notes)
    monkeypatch.setattr(chat, "pieces", lambda *_: iter(["", " \n"]))
    assert "".join(history.answer("the cat")) == " \n" and history.turns == 0
    notes.say()
    assert capsys.readouterr().err == "note: the answer is empty, so the message is taken back\n"


class Terminal(TypedTerminal):
    """A `chat base` with a user's keyboard input."""

    def __init__(self, *words: str) -> None:
        super().__init__(command(*words), ENVIRONMENT)
        self.mark()

    def read(self) -> None:
        """Read the next output, with line feeds as line ends."""
        super().read()
        self.shown = self.shown.replace("\r\n", "\n")

    def said(self, text: str) -> str:
        """Type a line, and return the output up to the next prompt mark."""
        self.type(f"{text}\n")
        return self.mark().removeprefix(f"{text}\n")

    def interrupt_until(self, reached: Callable[[str], bool]) -> None:
        """Press Ctrl-C until the output is reached: CPython loses a signal between the mark and the wait for a key."""
        end = time.monotonic() + 60
        while not reached(self.shown) and self.process.poll() is None:
            assert time.monotonic() < end, self.shown
            self.interrupt()
            if self.ready(1):
                self.read()


def test_a_terminal_answers_saves_and_starts_again(here: Path) -> None:
    run = mc.load_run("base")
    first = run.chat(turns("the cat 1"), max_tokens=12, seed=2)
    second = run.chat(turns("the cat 1", first, "é"), max_tokens=12, seed=2)
    terminal = Terminal(*WORDS)
    assert "/reset" in terminal.said("/help") and terminal.said("") == ""
    assert "nothing" not in terminal.said("/save a.jsonl") and not Path("a.jsonl").exists()
    terminal.said("the cat 1")
    terminal.said("é")
    Path("a.jsonl").write_text('{"messages": []}')
    assert "appended the conversation to a.jsonl: 2 turns" in terminal.said("/save a.jsonl")
    lines = Path("a.jsonl").read_text().splitlines()
    assert json.loads(lines[1]) == {"messages": turns("the cat 1", first, "é", second)}
    for wrong in ("/nowhere/a", ".", "/dev/full"):
        assert f"expected a file that can be written, got '{wrong}'" in terminal.said(f"/save {wrong}")
    assert "did you mean '/save'?" in terminal.said("/sav")
    assert "a file after it" in terminal.said("/save")
    assert "new conversation" in terminal.said("/reset") and "send a message" in terminal.said("/save b")
    terminal.said("the cat 1")
    terminal.said("/save b")
    assert json.loads(Path("b").read_text())["messages"] == turns("the cat 1", first)
    terminal.type("\x04")
    assert terminal.code() == 0
    Path("a.jsonl").write_text(lines[1] + "\n")
    words = ["data.eval_path=chat.jsonl", "train.steps=1", "train.batch_size=1", "train.logical_shards=1"]
    assert main(["tune", "--base=base", "--data=a.jsonl", "--workdir=run", *words]) == 0


def test_ctrl_c_ends_an_answer_and_twice_at_the_prompt_the_program(here: Path) -> None:
    config = json.loads(Path("base/config.json").read_text())
    Path("base/config.json").write_text(json.dumps({**config, "max_position_embeddings": 40_000}))
    Path("plain").write_text("{% for t in messages %}{{ t.content }}{% endfor %}")
    terminal = Terminal("--max-tokens=30000", "--template=plain", "--temperature=0", "train.threads=1")
    terminal.type("the cat\n")
    terminal.wait(lambda shown: len(shown) > 40)
    terminal.process.send_signal(signal.SIGINT)
    terminal.mark()
    assert "1 turn" in terminal.said("/save a")
    terminal.interrupt_until(lambda shown: "again" in shown)
    terminal.mark()
    assert "/reset" in terminal.said("/help")
    terminal.interrupt_until(lambda shown: "interrupted" in shown)
    terminal.wait(lambda shown: "interrupted" in shown)
    assert terminal.code() == 130


def test_sigterm_ends_the_program_and_a_closed_pipe_is_no_error(here: Path) -> None:
    terminal = Terminal(*WORDS)
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.code() == -signal.SIGTERM
    line = " ".join(command(*WORDS)) + " | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        input=b"the cat 1\n" * 5,
        env=ENVIRONMENT,
        capture_output=True,
        check=False,
    )
    assert done.returncode in (0, 141) and len(done.stdout) == 1 and b"Error" not in done.stderr
