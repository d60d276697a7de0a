"""The reader of a sentencepiece model's pieces and settings, against the library and with damaged files."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mudd_core.base.errors import FormatError
from mudd_core.data.tokenizers.sentencepiece_proto import PieceType, read_model

sentencepiece = pytest.importorskip("sentencepiece")


def train(folder: Path, **options: object) -> bytes:
    """Return a small model. options: of the trainer."""
    text = folder / "text"
    text.write_text("the cat sat on the mat\nthe dog sat on a log\n" * 20)
    settings = {
        "vocab_size": 290,
        "hard_vocab_limit": False,
        "minloglevel": 2,
        "byte_fallback": True,
        **options,
    }
    sentencepiece.SentencePieceTrainer.train(input=str(text), model_prefix=str(folder / "made"), **settings)
    return (folder / "made.model").read_bytes()


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_scores_and_types_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    data = train(
        tmp_path, model_type=kind, user_defined_symbols=["<talk>", "<end>"], control_symbols=["<pause>"]
    )
    found = read_model(data, "made.model")
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert len(found.pieces) == library.get_piece_size()
    for number, piece in enumerate(found.pieces):
        assert piece.text == library.id_to_piece(number)
        assert piece.score == library.get_score(number)
        assert (piece.type == PieceType.UNKNOWN) == library.is_unknown(number)
        assert (piece.type == PieceType.CONTROL) == library.is_control(number)
        assert (piece.type == PieceType.BYTE) == library.is_byte(number)
    assert [piece.text for piece in found.pieces if piece.type == PieceType.USER_DEFINED] == [
        "<talk>",
        "<end>",
    ]
    assert (found.model_type, found.byte_fallback) == (kind, True)


def test_the_settings_of_the_normalizer_are_read(tmp_path: Path) -> None:
    found = read_model(train(tmp_path), "made.model")
    assert (found.adds_prefix, found.removes_spaces, found.escapes_spaces) == (True, True, True)
    assert found.charsmap and not found.prefix_is_suffix
    plain = {
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "add_dummy_prefix": False,
    }
    found = read_model(train(tmp_path, **plain, byte_fallback=False), "made.model")
    assert (found.adds_prefix, found.removes_spaces, found.byte_fallback) == (False, False, False)
    assert not found.charsmap


def test_damaged_files_raise_an_error_of_the_format(tmp_path: Path) -> None:
    data = train(tmp_path, vocab_size=280)
    draw, refused = random.Random(1), 0
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        if draw.random() < 0.3:
            del changed[draw.randrange(len(changed)) :]
        try:
            read_model(bytes(changed), "made.model")
        except FormatError as error:
            refused += 1
            assert "made.model" in str(error)
    assert refused > 100
