"""Rules that a tokenizer.json must obey before the `tokenizers` library reads it (docs/data.md, 2).

The file may come from anyone. A FormatError here names the position of the error; the library itself might panic.
Regular expressions are not checked, because the library's engine stops them after a fixed number of steps.
"""

from __future__ import annotations

import json
import math
from typing import TypedDict

from mudd_core.base.errors import FormatError
from mudd_core.base.types import Json, JsonObject

MAX_BYTES = 100 * 2**20
MAX_DEPTH = 64
MAX_TOKEN_BYTES = 2048
MAX_VOCABULARY = 2**24
MAX_PATTERN = 4096
MAX_HOLES = 2**20  # largest number of ids without a token
MODELS = ("BPE", "WordLevel", "WordPiece", "Unigram")


class AddedToken(TypedDict):
    """A token in addition to the model's vocabulary."""

    id: int
    content: str


class Model(TypedDict):
    """The vocabulary: token to id, or for Unigram pairs of token and score."""

    type: str
    vocab: dict[str, int] | list[tuple[str, float]]


class Decoder(TypedDict, total=False):
    """The decoder from tokens to text; decoders: the steps of a Sequence."""

    type: str
    decoders: list[Decoder] | None


class TokenizerJson(TypedDict, total=False):
    """The keys that are read from a checked tokenizer.json."""

    model: Model
    added_tokens: list[AddedToken] | None
    decoder: Decoder | None


def check_tokenizer_json(data: bytes, file: str) -> TokenizerJson:
    """Return the parsed content of a tokenizer.json; raise FormatError if it breaks a rule."""
    checker = _Checker(file)
    try:
        return checker.check(data)
    except (AttributeError, TypeError, ValueError) as e:  # a value has a wrong type
        raise checker.bad(str(e)) from None


class _Checker:
    def __init__(self, file: str) -> None:
        self.file = file

    def bad(self, reason: str, offset: int = 0) -> FormatError:
        return FormatError(self.file, offset, f"not a usable tokenizer.json: {reason}")

    def check(self, data: bytes) -> TokenizerJson:
        if len(data) > MAX_BYTES:
            raise self.bad(f"{len(data)} bytes; at most {MAX_BYTES} are allowed")
        try:
            parsed = json.loads(data.decode("utf-8"), object_pairs_hook=self.unique)
        except UnicodeDecodeError as e:
            raise self.bad("not UTF-8", e.start) from None
        except json.JSONDecodeError as e:
            raise self.bad(f"not JSON: {e.msg}", e.pos) from None
        except RecursionError:
            raise self.bad(f"nested deeper than {MAX_DEPTH}") from None
        top: Json = parsed
        if not isinstance(top, dict):
            raise self.bad("the top level is not an object")
        self._rules(top)
        content: TokenizerJson = parsed
        return content

    def _rules(self, top: JsonObject) -> None:
        self.depth_and_patterns(top)
        ids = self.model(top.get("model"))
        self.added_tokens(top.get("added_tokens"), ids)
        if not ids:
            raise self.bad("the vocabulary is empty")
        if max(ids.values()) >= len(ids) + MAX_HOLES:
            raise self.bad(f"id {max(ids.values())} in a vocabulary of {len(ids)} tokens")
        self.decoder(top.get("decoder"))
        self.lengths(top)
        self.template(top.get("post_processor"), ids)

    def unique(self, pairs: list[tuple[str, Json]]) -> JsonObject:
        out = dict(pairs)
        if len(out) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(n for n in out if names.count(n) > 1)
            raise self.bad(f"key {twice[:80]!r} occurs twice in one object")
        return out

    def depth_and_patterns(self, top: JsonObject) -> None:
        level: list[Json] = [top]
        for depth in range(MAX_DEPTH + 1):
            if not level:
                return
            if depth == MAX_DEPTH:
                break
            below: list[Json] = []
            for value in level:
                if isinstance(value, dict):
                    pattern = value.get("Regex")
                    if isinstance(pattern, str) and len(pattern) > MAX_PATTERN:
                        raise self.bad(
                            f"a regular expression of {len(pattern)} characters; at most "
                            f"{MAX_PATTERN} are allowed"
                        )
                    below.extend(v for v in value.values() if isinstance(v, dict | list))
                elif isinstance(value, list):
                    below.extend(v for v in value if isinstance(v, dict | list))
            level = below
        raise self.bad(f"nested deeper than {MAX_DEPTH}")

    def token(self, token: object, where: str) -> str:
        if (
            not isinstance(token, str)
            or not token
            or len(token.encode("utf-8", "surrogatepass")) > MAX_TOKEN_BYTES
        ):
            raise self.bad(
                f"{where}: a token is not a string of 1 to {MAX_TOKEN_BYTES} bytes: {str(token)[:80]!r}"
            )
        return token

    def id(self, value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_VOCABULARY:
            raise self.bad(f"{where}: id {value!r} is not a whole number in [0, {MAX_VOCABULARY})")
        return value

    def model(self, model: object) -> dict[str, int]:
        """Check the model and return token -> id."""
        if not isinstance(model, dict):
            raise self.bad("model is not an object")
        kind = model.get("type")
        if kind not in MODELS:
            raise self.bad(f"model type {kind!r}, expected one of {', '.join(MODELS)}")
        if kind == "Unigram":
            return self.unigram(model)
        vocab = model.get("vocab")
        if not isinstance(vocab, dict):
            raise self.bad("model.vocab is not an object")
        ids = {self.token(t, "model.vocab") if t else t: self.id(i, "model.vocab") for t, i in vocab.items()}
        if len(set(ids.values())) != len(ids):
            raise self.bad("model.vocab gives one id to two tokens")
        unknown = model.get("unk_token")
        if unknown is not None and unknown not in ids:
            raise self.bad(f"model.unk_token {str(unknown)[:80]!r} is not in the vocabulary")
        if kind == "BPE":
            self.merges(model, ids)
            if model.get("dropout"):
                raise self.bad(
                    f"model.dropout is {model['dropout']!r}: every call would return other ids; set "
                    "it to null"
                )
        return ids

    def unigram(self, model: JsonObject) -> dict[str, int]:
        vocab = model.get("vocab")
        if not isinstance(vocab, list) or len(vocab) >= MAX_VOCABULARY:
            raise self.bad("model.vocab is not a list, or its length is out of range")
        ids: dict[str, int] = {}
        for i, item in enumerate(vocab):
            if not isinstance(item, list) or len(item) != 2 or not isinstance(item[1], int | float):
                raise self.bad(f"model.vocab[{i}] is not a pair of token and score")
            if not math.isfinite(item[1]):
                raise self.bad(f"model.vocab[{i}] has the score {item[1]}")
            ids[self.token(item[0], f"model.vocab[{i}]")] = i
        unknown = model.get("unk_id")
        if unknown is not None and self.id(unknown, "model.unk_id") >= len(vocab):
            raise self.bad(f"model.unk_id {unknown} is outside the vocabulary of {len(vocab)}")
        return ids

    def merges(self, model: JsonObject, ids: dict[str, int]) -> None:
        merges = model.get("merges")
        if not isinstance(merges, list):
            raise self.bad("model.merges is not a list")
        prefix = model.get("continuing_subword_prefix") or ""
        if not isinstance(prefix, str):
            raise self.bad(f"model.continuing_subword_prefix is not a string but {prefix!r}")
        for i, merge in enumerate(merges):
            pair = merge.split(" ") if isinstance(merge, str) else merge
            left, right = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
            if not isinstance(left, str) or not isinstance(right, str):
                raise self.bad(f"model.merges[{i}] is not a pair of tokens")
            # The library would remove as many characters as the prefix has, even in the middle of a character.
            if not right.startswith(prefix):
                raise self.bad(
                    f"model.merges[{i}]: {right[:80]!r} does not start with model.continuing_subword_prefix "
                    f"{prefix[:80]!r}"
                )
            whole = left + right.removeprefix(prefix)
            for part in (left, right, whole):
                if part not in ids:
                    raise self.bad(f"model.merges[{i}] needs {part[:80]!r}, which is not in the vocabulary")

    def added_tokens(self, added: object, ids: dict[str, int]) -> None:
        if added is None:
            return
        if not isinstance(added, list):
            raise self.bad("added_tokens is not a list")
        names = {i: t for t, i in ids.items()}
        for k, item in enumerate(added):
            if not isinstance(item, dict):
                raise self.bad(f"added_tokens[{k}] is not an object")
            token = self.token(item.get("content"), f"added_tokens[{k}]")
            number = self.id(item.get("id"), f"added_tokens[{k}]")
            if ids.get(token, number) != number or names.get(number, token) != token:
                raise self.bad(f"added_tokens[{k}]: {token[:80]!r} = {number} contradicts the vocabulary")
            ids[token] = number
            names[number] = token

    def decoder(self, decoder: object) -> None:
        steps = decoder.get("decoders") or [] if isinstance(decoder, dict) else []
        if not isinstance(decoder, dict | None) or not isinstance(steps, list):
            raise self.bad("decoder is not an object")
        if not all(isinstance(step, dict) for step in steps):
            raise self.bad("decoder.decoders is not a list of objects")

    def lengths(self, top: JsonObject) -> None:
        cut = top.get("truncation")
        if cut is not None:
            longest = cut.get("max_length") if isinstance(cut, dict) else None
            stride = cut.get("stride", 0) if isinstance(cut, dict) else None
            if self.id(longest, "truncation.max_length") <= self.id(stride, "truncation.stride"):
                raise self.bad(f"truncation.stride {stride} is not below max_length {longest}")
        padding = top.get("padding")
        if padding is not None:
            if not isinstance(padding, dict):
                raise self.bad("padding is not an object")
            self.id(padding.get("pad_id", 0), "padding.pad_id")
            strategy = padding.get("strategy")
            if isinstance(strategy, dict):
                self.id(strategy.get("Fixed", 0), "padding.strategy.Fixed")
            if padding.get("pad_to_multiple_of") is not None:
                self.id(padding["pad_to_multiple_of"], "padding.pad_to_multiple_of")

    def template(self, processor: object, ids: dict[str, int]) -> None:
        if not isinstance(processor, dict):
            return
        if processor.get("type") == "Sequence":
            for part in processor.get("processors") or []:
                self.template(part, ids)
        if processor.get("type") != "TemplateProcessing":
            return
        special = processor.get("special_tokens")
        if not isinstance(special, dict):
            raise self.bad("post_processor.special_tokens is not an object")
        known = set(ids.values())
        for name, entry in special.items():
            tokens = entry.get("tokens") if isinstance(entry, dict) else None
            numbers = entry.get("ids") if isinstance(entry, dict) else None
            if not isinstance(tokens, list) or not isinstance(numbers, list) or len(tokens) != len(numbers):
                raise self.bad(f"post_processor.special_tokens[{name[:80]!r}]: ids and tokens do not match")
            for number in numbers:
                if self.id(number, "post_processor") not in known:
                    raise self.bad(
                        f"post_processor.special_tokens[{name[:80]!r}]: id {number} is not in the vocabulary"
                    )
        for part in ("single", "pair"):
            pieces = processor.get(part)
            for piece in pieces if isinstance(pieces, list) else []:
                wanted = piece.get("SpecialToken", {}).get("id") if isinstance(piece, dict) else None
                if wanted is not None and wanted not in special:
                    raise self.bad(
                        f"post_processor.{part} uses {str(wanted)[:80]!r}, which it does not define"
                    )
