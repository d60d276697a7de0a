"""Find the tokenizer that data.tokenizer names, and store it in a token cache.

bpe | bytes | a tokenizer.json | a *.model of sentencepiece | a folder (folder.py) | a Hugging Face Hub name.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import JsonObject
from mudd_core.data.sources.access import LOCAL, Access
from mudd_core.data.sources.hub_names import hub_folder, is_hub_name
from mudd_core.data.tokenizers import folder as tokenizer_folder
from mudd_core.data.tokenizers.bpe_pieces import LONGEST_PIECE
from mudd_core.data.tokenizers.check import check_tokenizer_json
from mudd_core.data.tokenizers.folder import read_limited
from mudd_core.data.tokenizers.special_tokens import SpecialIds, usual_end
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer, JsonTokenizer, Tokenizer, vocabulary

_WANTED = "bpe, bytes or the path of a tokenizer.json"
_NAMED = "bpe, bytes, a tokenizer.json, a *.model, a folder with one of them"
_STORED = {"json": "tokenizer.json", "bpe": "tokenizer.json", "sentencepiece": "tokenizer.model"}


@dataclass(frozen=True)
class TokenizerSource:
    """The origin of a tokenizer. kind: bytes, bpe (trained on the corpus, so no data yet), json or sentencepiece.

    Another kind is ids, for documents that already are ids below vocab_size. splits_long_pieces: a bpe splits pieces of
    more than LONGEST_PIECE bytes, because the documents have some.
    """

    kind: str
    data: bytes = b""
    file: str = ""
    special: SpecialIds = field(default_factory=SpecialIds)
    vocab_size: int = 0
    splits_long_pieces: bool = False

    @property
    def identity(self) -> str:
        """The tokenizer's part of a cache name: kind, size and trainer, or the SHA-256 of its file."""
        if self.kind == "bytes":
            return "bytes"
        if self.kind == "ids":
            return f"ids:{self.vocab_size}"
        if self.kind == "bpe":  # another version of the library may train another vocabulary
            pieces = f", pieces of {LONGEST_PIECE} bytes" if self.splits_long_pieces else ""
            return f"bpe:{self.vocab_size}, tokenizers {metadata.version('tokenizers')}{pieces}"
        return f"{self.kind}:{hashlib.sha256(self.data).hexdigest()}{self.special.text()}"

    def forms(self) -> tuple[TokenizerSource, ...]:
        """Return the tokenizers that this source may become.

        A bpe has two: with and without the split of long pieces.
        """
        return (self, replace(self, splits_long_pieces=True)) if self.kind == "bpe" else (self,)

    def reading_names(self) -> TokenizerSource:
        """Return the source for pipelines of the original programs, in which names such as `</s>` are tokens."""
        if self.kind not in ("json", "sentencepiece"):
            return self  # other programs do not have these tokenizers
        return replace(self, special=replace(self.special, names=1))

    def make(self) -> Tokenizer:
        """Build the tokenizer. A bpe must be trained first."""
        return _made(self.kind, self.data, self.file, self.special)


def _made(kind: str, data: bytes, file: str, special: SpecialIds) -> Tokenizer:
    if kind == "bytes":
        return ByteTokenizer()
    if kind == "sentencepiece":
        from mudd_core.data.tokenizers.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(data, file, special)
    return JsonTokenizer(data, file, special)


def find_tokenizer(name: str, vocab_size: int, access: Access = LOCAL) -> TokenizerSource:
    """Return the tokenizer of a config; raise UserError if there is none, FormatError if its files are damaged."""
    name = access.local(name, "[data.tokenizer]")
    if name in ("bpe", "bytes"):
        return TokenizerSource(name, vocab_size=vocab_size)
    path = Path(name).expanduser() if "\0" not in name else Path("")
    if path.is_dir():
        return _in_folder(path)
    if not path.exists() and is_hub_name(name):
        return _in_folder(hub_folder(name, tokenizer_folder.FILES, access, "[data.tokenizer]", _NAMED))
    data = read_tokenizer_json(name)
    if name.endswith(".model"):
        return _of_model(data, name, {}, "")
    return TokenizerSource("json", data, name)


def is_here(name: str) -> bool:
    """Return whether a name is a tokenizer's folder, or a hub name with files on this machine."""
    try:
        return Path(name).is_dir() or bool(hub_folder(name, tokenizer_folder.FILES, LOCAL, "", ""))
    except UserError:
        return False


def needs_its_folder(file: Path) -> bool:
    """Return whether a tokenizer.json does not name EOS, but the config next to it does."""
    content = check_tokenizer_json(read_tokenizer_json(str(file)), str(file))
    return usual_end(vocabulary(content)) is None and "eos_token" in tokenizer_folder.config_of(file.parent)


def read_tokenizer_json(path: str) -> bytes:
    """Return the bytes of a tokenizer.json; raise UserError if it cannot be read, FormatError if it is too large."""
    return read_limited(path, _WANTED)


def _in_folder(folder: Path) -> TokenizerSource:
    config = tokenizer_folder.config_of(folder)
    whole = folder / "tokenizer.json"
    if whole.is_file():
        data = read_tokenizer_json(str(whole))
        special = tokenizer_folder.special_of_json(data, config, folder)
        return TokenizerSource("json", data, str(whole), special)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        data = tokenizer_folder.joined(folder, config)
        special = tokenizer_folder.special_of_json(data, config, folder)
        return TokenizerSource("json", data, str(folder / "vocab.json"), special)
    for name in (*tokenizer_folder.MODELS, *sorted(path.name for path in folder.glob("*.model"))):
        if (folder / name).is_file():
            data = read_limited(str(folder / name), _WANTED)
            return _of_model(data, str(folder / name), config, str(folder / tokenizer_folder.CONFIG))
    raise UserError(
        f"[data.tokenizer] {folder}: expected tokenizer.json, vocab.json with merges.txt, or a *.model, got a folder "
        "without them"
    )


def _of_model(data: bytes, file: str, config: JsonObject, config_file: str) -> TokenizerSource:
    from mudd_core.data.tokenizers.sentencepiece import special_of_model

    return TokenizerSource("sentencepiece", data, file, special_of_model(data, file, config, config_file))


def stored_file(identity: str) -> str | None:
    """Return the name of the file that a cache stores for this tokenizer; None for bytes."""
    return _STORED.get(identity.partition(":")[0])


def stored_tokenizer(identity: str, data: bytes, file: str) -> Tokenizer:
    """Return the tokenizer from the file in a cache; raise FormatError if the identity is damaged."""
    kind, _, rest = identity.partition(":")
    try:
        special = SpecialIds() if kind == "bpe" else SpecialIds.of_text(rest.partition(" ")[2])
    except ValueError as error:
        raise FormatError(file, 0, f"its tokenizer is {identity[:80]!r}: {error}") from None
    return _made(kind, data, file, special)
