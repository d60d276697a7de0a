"""Encode documents in a child process, so that its memory returns to the system after a cache is built.

The library keeps some 100 MiB, and malloc fragments more, which the run would otherwise use until its end. The first
message to the process has the tokenizer. Each further message has the lengths and bytes of documents, and its answer
the lengths and ids. The process ignores stop signals, since the run handles them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import BinaryIO

import numpy as np

from mudd_core import _core
from mudd_core.base.child import Child
from mudd_core.base.errors import UserError
from mudd_core.base.types import Array
from mudd_core.data.messages import Message, answer_parent, error_of, fault_of, joined, receive, send
from mudd_core.data.tokenizers.source import TokenizerSource, stored_tokenizer
from mudd_core.data.tokenizers.streams import TextStream
from mudd_core.data.tokenizers.tokenizer import Ids, Tokenizer

# With these settings the process needs half of the memory, because freed blocks return to the system at once.
_ENVIRONMENT = {
    "MALLOC_ARENA_MAX": "4",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "OMP_NUM_THREADS": "1",
}

_PROGRAM = "mudd_core.data.documents.encoding"


class ChildTokenizer:
    """A tokenizer whose encode_documents runs in a child process; the process starts with the first documents."""

    def __init__(
        self, tokenizer: Tokenizer, source: TokenizerSource, data: bytes, check: Callable[[], None]
    ) -> None:
        """Set up without starting the process. data: the content of the tokenizer's file.

        check: called five times a second; an exception that it raises ends the encoding. `whole` is the tokenizer in
        this process.
        """
        self.whole, self._check = tokenizer, check
        self.vocab_size, self.bos_id = tokenizer.vocab_size, tokenizer.bos_id
        self.eos_id, self.pad_id = tokenizer.eos_id, tokenizer.pad_id
        self.stop_ids = tokenizer.stop_ids
        self._recipe: Message = (
            {"identity": source.identity, "tokenizer_file": source.file},
            [np.frombuffer(data, np.uint8)],
        )
        self._child: Child | None = None

    @property
    def ids_below(self) -> int:
        """The bound of the ids to sample, as Tokenizer.ids_below."""
        return self.whole.ids_below

    def encode(self, text: str, *, bos: bool = True, special_tokens: bool = True) -> list[int]:
        """Return the ids of a string, as Tokenizer.encode does."""
        return self.whole.encode(text, bos=bos, special_tokens=special_tokens)

    def special_ids(self) -> set[int]:
        """Return the ids of the special tokens."""
        return self.whole.special_ids()

    def for_prompts(self, stop_ids: Iterable[int] = ()) -> Tokenizer:
        """Return the tokenizer for prompts, as Tokenizer.for_prompts does."""
        return self.whole.for_prompts(stop_ids)

    def encode_documents(self, texts: Sequence[bytes], *, template: bool = False) -> list[Ids]:
        """Encode documents as Tokenizer.encode_documents does; raise UserError if the process has ended."""
        child = self._child = self._child or self._started()
        arrays = joined([np.frombuffer(text, np.uint8) for text in texts], np.uint8)
        try:
            send(child.input, {"template": template}, arrays)
        except OSError:
            raise self._died(child) from None
        child.wait_for_output(self._check)
        answer = receive(child.output)
        if answer is None:
            raise self._died(child)
        head, found = answer
        if "error" in head:
            raise error_of(head, "the process that encodes the text failed")
        return [row.astype(np.int64) for row in parted(*found)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, as Tokenizer.decode does."""
        return self.whole.decode(ids)

    def stream(self, after: Sequence[int] = ()) -> TextStream:
        """Return a stream of text, as Tokenizer.stream does."""
        return self.whole.stream(after)

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _started(self) -> Child:
        child = Child(_PROGRAM, environment=_ENVIRONMENT)
        try:
            send(child.input, *self._recipe)
        except OSError:
            raise self._died(child) from None
        return child

    @staticmethod
    def _died(child: Child) -> UserError:
        how = child.ending(hint=" (out of memory?)")
        return UserError(
            f"[data] the process that encodes the text ended with {how}; start the same command "
            "again to continue"
        )


def parted(lengths: Array, values: Array) -> list[Array]:
    """Split the values that messages.joined concatenated into separate arrays."""
    return np.split(values, np.cumsum(lengths[:-1])) if lengths.size else []


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answer requests until the other side closes the pipe."""
    told = receive(source)
    if told is None:
        return
    made: Tokenizer | None = None
    while (job := receive(source)) is not None:
        head, (lengths, text) = job
        try:
            if made is None:
                made = stored_tokenizer(told[0]["identity"], told[1][0].tobytes(), told[0]["tokenizer_file"])
            texts = [part.tobytes() for part in parted(lengths, text)]
            rows = made.encode_documents(texts, template=head["template"])
        except Exception as error:
            send(out, fault_of(error))
            continue
        send(out, {}, joined([row.astype(np.int32) for row in rows], np.int32))


def main() -> None:
    """Run the child process."""
    answer_parent(serve, (*_core.stop_signals(), _core.save_signal()))


if __name__ == "__main__":
    main()
