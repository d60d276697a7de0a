"""A tokenizer.json that transformers made from a sentencepiece model: scores of tokens from the order of the merges.

llama.cpp joins the two neighbours whose joined text has the highest score. The library `tokenizers` joins the pair that
is first in a list. Both agree if the list has every split of a token, and if the splits of a token follow each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core.base.types import Json, JsonObject
from mudd_core.data.tokenizers.sentencepiece_proto import PieceType

SPACE = "▁"  # sentencepiece's character for a space
_REPLACES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_PREPENDS = {"type": "Prepend", "prepend": SPACE}
_SPLITS = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def pairs_of(model: JsonObject) -> list[tuple[str, str]]:
    """Return the merges of a BPE, which older files have as strings with a space."""
    merges = model["merges"]
    assert isinstance(merges, list)
    found = []
    for one in merges:
        pair = one.split(" ") if isinstance(one, str) else one
        assert isinstance(pair, list)
        first, second = map(str, pair)
        if " " in first + second:
            raise ValueError(f"expected merges of tokens without spaces, got {first!r} and {second!r}")
        found.append((first, second))
    return found


def adds_space(content: JsonObject) -> tuple[bool, bool]:
    """Return whether a space is added before text, and whether llama.cpp adds more spaces than the tokenizer.

    Metaspace adds none if the text has a space there already; llama.cpp always does. content: the tokenizer.json. Raise
    ValueError for one that does not split text like sentencepiece.
    """
    normalizers = _steps(content.get("normalizer"), "normalizers")
    splitters = _steps(content.get("pre_tokenizer"), "pretokenizers")
    if splitters in ([], [_SPLITS]) and normalizers in ([_PREPENDS, _REPLACES], [_REPLACES]):
        return _PREPENDS in normalizers, False
    match splitters:
        case [{"type": "Metaspace", "replacement": str(mark), "prepend_scheme": str(scheme), "split": False}]:
            if normalizers in ([], [_REPLACES]) and mark == SPACE and scheme in ("always", "never", "first"):
                return scheme != "never", scheme != "never"
    raise ValueError(
        "expected a tokenizer with byte fallback that splits text as sentencepiece does, got the normalizer "
        f"{str(normalizers)[:200]} and the pre_tokenizer {str(splitters)[:200]}"
    )


def _steps(value: Json, members: str) -> list[Json]:
    """Return the steps of a normalizer or pre-tokenizer. members: the key of the steps in a Sequence."""
    if value is None:
        return []
    steps = value.get(members) if isinstance(value, dict) and value.get("type") == "Sequence" else None
    return [step for one in steps for step in _steps(one, members)] if isinstance(steps, list) else [value]


def scores_of(model: JsonObject, types: Mapping[str, PieceType]) -> dict[str, float]:
    """Return the score of each token that a merge creates: 0 for the first, -1 for the second.

    types: of all tokens. Raise ValueError if llama.cpp would join other tokens.
    """
    pairs = pairs_of(model)
    # Other tokens are found in the text before pairs are joined.
    plain = {token for token, kind in types.items() if kind == PieceType.NORMAL}
    scores, last = dict[str, float](), ""
    for first, second in pairs:
        token = first + second
        if token != last:
            if token in scores:
                raise ValueError(_refusal(f"the merges of {token!r} do not follow each other"))
            scores[token], last = -float(len(scores)), token
    known = set(pairs)
    for token, kind in types.items():
        if kind != PieceType.NORMAL or len(token) == 1:
            continue
        splits = {(token[:at], token[at:]) for at in range(1, len(token))}
        missing = next((one for one in splits - known if one[0] in plain and one[1] in plain), None)
        if token not in scores or missing:
            raise ValueError(_refusal(f"no merge of {' and '.join(map(repr, missing or (token,)))}"))
    return scores


def _refusal(reason: str) -> str:
    return f"expected the merges of a sentencepiece model, of which llama.cpp has only scores, got {reason}"
