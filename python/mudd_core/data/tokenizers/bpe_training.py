"""Train a byte-level BPE in a child process: a stop ends it at once, and its memory returns to the system."""

from __future__ import annotations

import json
import os
import selectors
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from mudd_core.base.child import Child
from mudd_core.base.errors import UserError
from mudd_core.data.tokenizers.bpe_child import END
from mudd_core.data.tokenizers.bpe_pieces import LONGEST_PIECE, LONGEST_TOKEN
from mudd_core.data.tokenizers.special_tokens import END_OF_TEXT
from mudd_core.data.tokenizers.tokenizer import LOWEST_BPE_SIZE, byte_alphabet

PHASE = "training the tokenizer"
Report = Callable[[str, int, int], None]

_PROGRAM = Path(__file__).with_name("bpe_child.py")
# stages that the library reports -> names in messages
_STAGES = {"Tokenize words": "words", "Count pairs": "pairs", "Compute merges": "merges"}
_SEND_BYTES = 2**18
_TICK = 0.2  # seconds between checks for a stop


def train_bpe(
    texts: Iterable[bytes],
    n_texts: int,
    vocab_size: int,
    *,
    splits_long_pieces: bool = False,
    report: Report = lambda phase, done, total: None,
) -> bytes:
    """Return the tokenizer.json of a byte-level BPE of at most `vocab_size` tokens; EOS is id 0.

    Equal documents give equal bytes, whatever the number of threads. A small corpus may have too few pairs for
    `vocab_size` tokens. n_texts: the number of documents, 0 if unknown. splits_long_pieces: split pieces at
    LONGEST_PIECE bytes.
    report: called with (phase, done, total) at least five times a second; an exception that it raises ends the
    training. Raise UserError for a vocab_size below 257.
    """
    if vocab_size < LOWEST_BPE_SIZE:
        raise UserError(f"[data.vocab_size] expected at least {LOWEST_BPE_SIZE} for bpe, got {vocab_size}")
    split_at = LONGEST_PIECE if splits_long_pieces else 0
    options = {"vocab_size": vocab_size, "split_at": split_at, "longest_token": LONGEST_TOKEN}
    child = _started(options)
    try:
        trained = _Conversation(child, texts, n_texts, report).result()
    finally:
        child.end()
    # Versions of the library write different white space, so the JSON is formatted here.
    return json.dumps(json.loads(trained), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _started(options: dict[str, int]) -> Child:
    from mudd_core import _core

    told = {
        "options": options,
        "alphabet": sorted(byte_alphabet()),
        "end": END_OF_TEXT,
        "ignored_signals": [*_core.stop_signals(), _core.save_signal()],
    }
    try:
        return Child(_PROGRAM, [json.dumps(told)], hears_errors=True, buffered=False)
    except OSError as e:
        raise UserError(
            "[data.tokenizer] bpe: expected a Python interpreter that can be started, got "
            f"{sys.executable!r}: {e.strerror}"
        ) from None


class _Conversation:
    """The exchange with the child process.

    It sends documents and reads the result, and never blocks longer than a tick.
    """

    def __init__(self, child: Child, texts: Iterable[bytes], n_texts: int, report: Report) -> None:
        self._child, self._report = child, report
        self._messages = _messages(texts, self._sent_text)
        self._unsent = memoryview(b"")
        self._place = (PHASE, 0, n_texts)
        self._found, self._said = bytearray(), b""

    def result(self) -> bytes:
        """Return the child's output; raise UserError or RuntimeError if it failed."""
        with self._child.input as stdin, selectors.DefaultSelector() as pipes:
            os.set_blocking(stdin.fileno(), False)
            pipes.register(stdin, selectors.EVENT_WRITE, self._send)
            pipes.register(self._child.output, selectors.EVENT_READ, self._receive)
            pipes.register(self._child.errors, selectors.EVENT_READ, self._hear)
            outputs = 2
            while outputs:
                for key, _ in pipes.select(_TICK):
                    if not key.data(key.fileobj):
                        pipes.unregister(key.fileobj)
                        outputs -= key.fileobj is not stdin
                self._report(*self._place)
            # A closed stdin would make the child exit, as if this process had died. So wait for the child before
            # closing it.
            code = self._child.code()
        if code:
            raise _failure(code, self._said.decode("utf-8", "replace"))
        return bytes(self._found)

    def _sent_text(self) -> None:
        phase, done, total = self._place
        self._place = (phase, min(done + 1, total), total)
        self._report(*self._place)

    def _send(self, pipe: IO[bytes]) -> bool:
        if not self._unsent:
            self._unsent = memoryview(next(self._messages, b""))
        if not self._unsent:
            return False
        try:
            self._unsent = self._unsent[os.write(pipe.fileno(), self._unsent) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:  # the exit code explains the failure better
            return False
        return True

    def _receive(self, pipe: IO[bytes]) -> bool:
        self._found += (block := os.read(pipe.fileno(), 1 << 20))
        return bool(block)

    def _hear(self, pipe: IO[bytes]) -> bool:
        """Read lines of progress; keep other lines for an error message."""
        block = os.read(pipe.fileno(), 1 << 16)
        *lines, rest = (self._said[-4096:] + block).split(b"\n")
        kept = [line for line in lines if not self._follow(line)]
        self._said = b"\n".join([*kept, rest])
        return bool(block)

    def _follow(self, line: bytes) -> bool:
        """Store the progress from a line; return False for any other line."""
        try:
            told = json.loads(line)
            stage, done, total = _STAGES[told["stage"]], int(told["current"]), int(told["total"])
        except (ValueError, KeyError, TypeError):
            return False
        self._place = (f"{PHASE}: {stage}", done, total)
        return True


def _messages(texts: Iterable[bytes], sent: Callable[[], None]) -> Iterator[bytes]:
    """Yield blocks of several documents as fast as the child reads them. sent: called after each document."""
    parts: list[bytes] = []
    size = 0
    for text in texts:
        parts += [struct.pack("<Q", len(text)), text]
        size += len(text) + 8
        if size >= _SEND_BYTES:
            yield b"".join(parts)
            parts, size = [], 0
        sent()
    yield b"".join([*parts, struct.pack("<Q", END)])


def _failure(code: int, said: str) -> Exception:
    if code < 0:
        name = signal.Signals(-code).name
        return UserError(
            f"[data.tokenizer] bpe: the process that trains it was ended by signal {name} (out of memory?); name a "
            "tokenizer.json, or train it on less text"
        )
    return RuntimeError(f"[data.tokenizer] the process that trains bpe failed: {said.strip()[-1000:]}")
