"""The BPE that mudd_core trains: limits on pieces and tokens, names of caches, progress and stops."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from mudd_core.base.errors import StopRequestedError, UserError
from mudd_core.config import Config
from mudd_core.config.fields import replace_path
from mudd_core.data import prepare, synthetic
from mudd_core.data.cache.token_cache import fingerprint_of
from mudd_core.data.pipelines import prepare as prepare_data
from mudd_core.data.tokenizers.bpe_pieces import LONGEST_PIECE, LONGEST_TOKEN, has_long_piece
from mudd_core.data.tokenizers.bpe_training import train_bpe
from mudd_core.data.tokenizers.source import TokenizerSource
from mudd_core.data.tokenizers.special_tokens import END_OF_TEXT
from mudd_core.data.tokenizers.tokenizer import JsonTokenizer, byte_alphabet
from text_settings import Settings, quiet

PROSE = synthetic.text(3000, 1)
SIZE = 400


def plainly_trained(texts: list[str]) -> bytes:
    """Return the tokenizer.json that the library trains without limits, as earlier versions of mudd_core did."""
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(byte_alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    return json.dumps(json.loads(library.to_str()), ensure_ascii=False, separators=(",", ":")).encode()


def trained(texts: list[str], *, splits_long_pieces: bool = False) -> bytes:
    encoded = [text.encode() for text in texts]
    return train_bpe(encoded, len(texts), SIZE, splits_long_pieces=splits_long_pieces)


@pytest.mark.parametrize(
    "texts",
    [
        [PROSE],
        [PROSE, "", "\n\n", "漢字仮名交じり文。" * 40, "x = {}\t\t\r\n" * 9],
        [PROSE, "a" * 600, " " * 900, "b" * 600],
        [PROSE, "-" * LONGEST_TOKEN, "-" * LONGEST_TOKEN],  # becomes a single token
    ],
)
def test_texts_without_long_runs_keep_their_tokenizer(texts: list[str]) -> None:
    assert trained(texts) == plainly_trained(texts)


@pytest.mark.parametrize("sign", ["-", "7", "\n", "漢"])
def test_a_text_with_a_long_run_trains_a_tokenizer_that_is_read(sign: str) -> None:
    run = sign * (3 * LONGEST_PIECE // len(sign.encode()))
    for splits in (False, True):
        tokenizer = JsonTokenizer(trained([PROSE, run, run], splits_long_pieces=splits), "own")
        lengths = [len(tokenizer.token_bytes(i)) for i in range(1, tokenizer.vocab_size)]
        assert LONGEST_TOKEN // 2 < max(lengths) <= LONGEST_TOKEN
        assert tokenizer.decode(tokenizer.encode(run)) == run


def test_long_pieces_train_as_their_parts_do() -> None:
    bases = "".join(random.Random(1).choices("ACGT", k=9 * LONGEST_PIECE // 2))
    parts = [bases[at : at + LONGEST_PIECE] for at in range(0, len(bases), LONGEST_PIECE)]
    assert trained([PROSE, bases], splits_long_pieces=True) == trained([PROSE, *parts])
    assert trained([PROSE, bases], splits_long_pieces=True) != trained([PROSE, bases])


RUNS = ["a", "7", "-", " ", "\n", "é", "漢", "Ⅷ", "\x1c", "\U0001f469", "ab_"]


@pytest.mark.parametrize("sign", RUNS)
@pytest.mark.parametrize("before", ["", PROSE + " ", "漢字。" * 99, "x"])
def test_a_piece_is_long_above_the_bound(sign: str, before: str) -> None:
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for size in (0, 1, LONGEST_PIECE // 2, LONGEST_PIECE, 2 * LONGEST_PIECE, 5 * LONGEST_PIECE):
        for extra in (-2, -1, 0, 1):
            text = before + sign * (max(0, size + extra) // len(sign.encode())) + "\n" + PROSE[:500]
            longest = max(len(piece) for piece, _ in pieces.pre_tokenize_str(text))
            assert has_long_piece(text.encode()) == (longest > LONGEST_PIECE)


def test_prose_of_any_script_has_no_long_piece() -> None:
    for text in (
        PROSE,
        "漢字仮名交じり文、" * 3000,
        "ที่นี่คือไทย" * 3000,
        "0123456789abcdef" * 3000,
        "{}" * 2000,
    ):
        assert not has_long_piece(text.encode())


def settings_of(folder: Path, run: str) -> Settings:
    (folder / "text").mkdir(parents=True, exist_ok=True)
    for i in range(30):
        text = synthetic.text(400, i) + (run if i in (3, 4, 5) else "")
        (folder / "text" / f"{i}.txt").write_text(text)
    return Settings(str(folder / "text"), str(folder / "cache"), vocab_size=SIZE)


@pytest.mark.parametrize(("run", "is_long"), [("", False), ("a" * 600, False), ("a" * 5000, True)])
def test_the_name_of_a_cache_changes_only_with_its_tokenizer(tmp_path: Path, run: str, is_long: bool) -> None:
    cache = prepare(settings_of(tmp_path, run), progress=quiet)
    plain, split = TokenizerSource("bpe", vocab_size=SIZE).forms()
    assert cache.tokenizer_name == (split if is_long else plain).identity
    assert (cache.fingerprint == fingerprint_of(cache.corpus_hash, plain.identity)) == (not is_long)
    assert prepare(settings_of(tmp_path, run), progress=quiet).fingerprint == cache.fingerprint


def test_a_run_of_an_earlier_version_gets_its_own_tokenizer_again(tmp_path: Path) -> None:
    lines = [synthetic.text(400, i) + ("ACGTTGCA" * 700 if i % 9 == 0 else "") for i in range(60)]
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    config = Config()
    for name, value in (("path", str(file)), ("cache_dir", str(tmp_path / "cache")), ("vocab_size", SIZE)):
        config = replace_path(config, f"data.{name}", value)
    new = prepare_data(config, progress=quiet)
    identity, digest = TokenizerSource("bpe", vocab_size=SIZE).identity, new.cache.corpus_hash
    old = prepare_data(config, fingerprint=fingerprint_of(digest, identity), progress=quiet)
    assert old.fingerprint != new.fingerprint
    for data in (new, old):  # both caches are found, each by its own run
        assert (
            prepare_data(config, fingerprint=data.fingerprint, progress=quiet).fingerprint == data.fingerprint
        )
    with pytest.raises(UserError, match="expected the text and tokenizer of the start of this run"):
        prepare_data(config, fingerprint="0" * 16, progress=quiet)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list of the child processes that the test starts."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*args, **kwargs):  # type: ignore[no-untyped-def]
        started.append(popen(*args, **kwargs))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


@pytest.mark.parametrize("phase", ["training the tokenizer", "training the tokenizer: merges"])
def test_a_stop_ends_the_training_and_its_process(
    children: list[subprocess.Popen[bytes]], phase: str
) -> None:
    def report(now: str, done: int, total: int) -> None:
        if now == phase:
            raise StopRequestedError(now)

    with pytest.raises(StopRequestedError, match=phase):
        train_bpe([PROSE.encode()] * 3, 3, SIZE, report=report)
    assert [child.returncode is None for child in children] == [False]


def test_the_merges_are_reported() -> None:
    seen: list[tuple[str, int, int]] = []
    train_bpe([PROSE.encode()] * 3, 3, SIZE, report=lambda *place: seen.append(place))
    phases = [phase for phase, _ in itertools.groupby(phase for phase, _, _ in seen)]
    assert (phases[0], phases[-1]) == ("training the tokenizer", "training the tokenizer: merges")
    assert seen[-1][1] == seen[-1][2] > 0
    assert max(done for phase, done, _ in seen if phase == phases[0]) == 3


def test_a_text_that_cannot_be_read_ends_the_process(children: list[subprocess.Popen[bytes]]) -> None:
    def texts() -> Iterator[bytes]:
        yield PROSE.encode()
        raise UserError("lost")

    with pytest.raises(UserError, match="lost"):
        train_bpe(texts(), 2, SIZE)
    assert children[0].returncode == -signal.SIGKILL


def test_a_process_that_dies_is_an_error_of_the_user(children: list[subprocess.Popen[bytes]]) -> None:
    def texts() -> Iterator[bytes]:
        children[0].kill()
        yield from [PROSE.encode()] * 2000

    with pytest.raises(UserError, match="ended by signal SIGKILL"):
        train_bpe(texts(), 2000, SIZE)
