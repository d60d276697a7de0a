"""The tokenizer for the sequences, its BOS and EOS, and the special tokens that its template adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mudd_core.base.errors import FormatError, UserError
from mudd_core.data.sources.access import LOCAL, Access
from mudd_core.data.tokenizers.source import TokenizerSource, find_tokenizer

_TRIED = (
    "a"  # a string that every tokenizer can encode, so that a broken tokenizer fails before the work starts
)


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer that can be sent to another process."""

    source: TokenizerSource
    bos: int
    eos: int

    def encoder(self) -> Encoder:
        """Return a function that encodes strings to ids."""
        return Encoder(self.source)


class Encoder:
    """An encoder with the tokenizer's own template. The name of a special token in a document becomes that token."""

    def __init__(self, source: TokenizerSource) -> None:
        self._source, self._tokenizer = source, source.make()
        self._library = None
        if source.kind == "json":
            import tokenizers

            self._library = tokenizers.Tokenizer.from_str(source.data.decode("utf-8"))
            self._library.no_truncation()
            self._library.no_padding()

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        if self._library is None:
            coded = self._tokenizer.encode_documents([text.encode() for text in texts], template=True)
            return [ids.tolist() for ids in coded]
        try:
            return [one.ids for one in self._library.encode_batch_fast(list(texts))]
        except BaseException as error:
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise FormatError(
                    self._source.file, 0, f"the tokenizers library rejects a document: {error}"
                ) from None
            raise


def read_vocabulary(name: str, access: Access = LOCAL) -> Vocabulary:
    """Read the tokenizer of a folder, a file or a hub name; raise UserError if it has no BOS or no EOS."""
    try:
        source = find_tokenizer(name, 0, access)
        if source.kind == "bpe":
            raise UserError(
                "[data.tokenizer] expected an existing tokenizer, got bpe; name its folder or its "
                "tokenizer.json"
            )
        tokenizer = source.make()
    except UserError as error:
        text = (
            str(error)
            .replace("[data.tokenizer]", "[preprocess] --tokenizer-model")
            .replace("model expected", "model: expected")
        )
        raise UserError(text) from None
    tokenizer.encode(_TRIED)
    if tokenizer.bos_id is None:
        raise UserError(
            f"[preprocess] --tokenizer-model: {name} has no BOS token, and every sequence starts with one; set "
            "bos_token in a tokenizer_config.json next to it"
        )
    return Vocabulary(source, tokenizer.bos_id, tokenizer.eos_id)
