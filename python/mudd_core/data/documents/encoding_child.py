"""A process that encodes documents while a token cache is built: `python -m mudd_core.data.documents.encoding_child`.

The first message has the tokenizer. Each further one has the lengths and bytes of documents; the answer has the lengths
and ids of these. The process ends with its parent. A stop is the business of the parent, so signals of it are ignored.
"""

from __future__ import annotations

from typing import BinaryIO

import numpy as np

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.data.messages import answer_parent, fault_of, joined, receive, send
from mudd_core.data.tokenizers.source import stored_tokenizer
from mudd_core.data.tokenizers.tokenizer import Tokenizer


def parted(lengths: Array, values: Array) -> list[Array]:
    """Return the rows of messages.joined."""
    return np.split(values, np.cumsum(lengths[:-1])) if lengths.size else []


def serve(source: BinaryIO, out: BinaryIO) -> None:
    """Answer until the other side is gone."""
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
    """The process."""
    answer_parent(serve, (*_core.stop_signals(), _core.save_signal()))


if __name__ == "__main__":
    main()
