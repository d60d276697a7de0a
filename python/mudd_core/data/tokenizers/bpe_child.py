"""The child process of bpe_training.py: train a byte-level BPE on documents from stdin and write its JSON to stdout.

Run it as a script, without mudd_core: `<python> -I -S bpe_child.py <settings as JSON> <sys.path...>`. A document on
stdin is its length in eight bytes and its UTF-8; the length END marks the last one. Progress goes to stderr as lines of
JSON.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from typing import BinaryIO

END = 2**64 - 1


def texts_of(source: BinaryIO) -> Iterator[str]:
    """Yield the documents up to the end mark; exit if the parent dies before it."""
    while True:
        head = source.read(8)
        size = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if size == END:
            threading.Thread(target=_end_with_parent, args=(source,), daemon=True).start()
            return
        text = source.read(size) if size >= 0 else b""
        if len(text) != size:
            os._exit(1)
        yield text.decode("utf-8")


def _end_with_parent(source: BinaryIO) -> None:
    """End this process when the parent closes stdin or dies."""
    source.read(1)
    os._exit(1)


def train(options: dict[str, int], alphabet: list[str], end: str, texts: Iterator[str]) -> str:
    """Train a BPE and return the library's JSON. split_at: size in bytes at which a piece is split; 0: never."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.pre_tokenizer = pieces
    if options["split_at"]:
        limit = pre_tokenizers.Split(Regex(f".{{{options['split_at']}}}"), "isolated")
        library.pre_tokenizer = pre_tokenizers.Sequence([pieces, limit])
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=options["vocab_size"],
        special_tokens=[end],
        initial_alphabet=alphabet,
        max_token_length=options["longest_token"] + 1,  # all tokens are shorter than this
        show_progress=False,
    )
    if hasattr(trainer, "progress_format"):  # a parameter since tokenizers 0.22.2
        trainer.show_progress, trainer.progress_format = True, "json"
    library.train_from_iterator(texts, trainer)
    library.pre_tokenizer = pieces
    return library.to_str()


def main() -> None:
    """Train with the settings in the first argument."""
    told = json.loads(sys.argv[1])
    sys.path[:] = sys.argv[2:]
    for number in told["ignored_signals"]:  # the parent handles stop signals
        signal.signal(number, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that no library prints into the result
    out.write(
        train(told["options"], told["alphabet"], told["end"], texts_of(sys.stdin.buffer)).encode("utf-8")
    )
    out.flush()
    os._exit(0)  # the thread that watches the parent is still reading


if __name__ == "__main__":
    main()
