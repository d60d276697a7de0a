"""The Kneser-Ney reference against a dictionary version written literally from the paper."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from places import ROOT

NGRAM = ROOT / "bench" / "ngram"
sys.path.insert(0, str(NGRAM))

from kneser_ney import KneserNey  # noqa: E402

from near import FLOAT64  # noqa: E402

VOCAB, EOS = 120, 0


def documents(seed: int, count: int) -> list[list[int]]:
    """Return documents of a skewed Markov chain, the same chain for all seeds.

    Counts of n-grams range from one to dozens, so all discounts apply.
    """
    skew = 0.8 / np.arange(1, VOCAB) ** 1.5
    table = np.random.default_rng(0).dirichlet(skew * 3.0, VOCAB)
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        doc, last = [], 0
        for _ in range(int(rng.integers(1, 30))):
            last = 1 + int(rng.choice(VOCAB - 1, p=table[last]))
            doc.append(last)
        out.append([*doc, EOS])
    return out


def flat(docs: list[list[int]]) -> NDArray[np.uint16]:
    return np.array([t for d in docs for t in d], np.uint16)


class Plain:
    """A recursive dictionary model of one order."""

    def __init__(self, docs: list[list[int]], order: int) -> None:
        self.counts: dict[int, Counter[tuple[int, ...]]] = {k: Counter() for k in range(1, order + 1)}
        lefts: dict[tuple[int, ...], set[int]] = defaultdict(set)
        for doc in docs:
            padded = [EOS] * (order - 1) + doc
            for i in range(order - 1, len(padded)):
                for k in range(1, order + 1):
                    gram = tuple(padded[i - k + 1 : i + 1])
                    self.counts[k][gram] += 1
                    if i - k >= 0:
                        lefts[gram].add(padded[i - k])
        for k in range(1, order):
            for gram in self.counts[k]:
                if k == 1 or gram[0] != EOS:
                    self.counts[k][gram] = len(lefts[gram])
        self.discounts = {}
        for k, counter in self.counts.items():
            n = Counter(counter.values())
            assert n[1] and n[2] and n[3], "the text must use every discount"
            y = n[1] / (n[1] + 2 * n[2])
            self.discounts[k] = [0.0] + [i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3)]

    def p(self, context: tuple[int, ...], token: int) -> float:
        k = len(context) + 1
        lower = 1.0 / VOCAB if k == 1 else self.p(context[1:], token)
        followers = {g[-1]: c for g, c in self.counts[k].items() if g[:-1] == context}
        total = sum(followers.values())
        if total == 0:
            return lower
        d = self.discounts[k]
        left = sum(d[min(c, 3)] for c in followers.values())
        c = followers.get(token, 0)
        return (c - d[min(c, 3)]) / total + left / total * lower


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_equals_the_plain_model(order: int) -> None:
    train, valid = documents(1, 60), documents(2, 4)
    plain, fast = Plain(train, order), KneserNey(flat(train), VOCAB, EOS, order)
    want = []
    for doc in valid:
        padded = [EOS] * (order - 1) + doc
        for i in range(order - 1, len(padded)):
            want.append(-np.log(plain.p(tuple(padded[i - order + 1 : i]), padded[i])))
    np.testing.assert_allclose(fast.nats(flat(valid)), want, rtol=FLOAT64)


@pytest.mark.parametrize("order", [1, 3, 5])
def test_distributions_sum_to_one(order: int) -> None:
    model = KneserNey(flat(documents(1, 60)), VOCAB, EOS, order)
    contexts = np.random.default_rng(0).integers(0, VOCAB, (200, max(order - 1, 0)))
    assert model.worst_sum_error(contexts) < FLOAT64


def test_longer_context_helps_on_a_markov_text() -> None:
    train, valid = flat(documents(1, 400)), flat(documents(2, 40))
    bits = [KneserNey(train, VOCAB, EOS, order).nats(valid).mean() for order in (1, 2)]
    assert bits[1] < bits[0] - 0.2


def test_script_prints_hashes_and_bits(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", flat(documents(1, 60)))
    np.save(tmp_path / "v.npy", flat(documents(2, 6)))
    args = ["--train", "t.npy", "--valid", "v.npy", "--valid-bytes", "100", "--vocab", str(VOCAB)]
    run = subprocess.run(
        [sys.executable, str(NGRAM / "ngram_bound.py"), *args], cwd=tmp_path, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "sha256" in run.stdout and "order 5" in run.stdout


@pytest.mark.parametrize("damaged", [False, True])
def test_script_reads_a_token_cache(tmp_path: Path, damaged: bool) -> None:
    """The script reads the layout of data/cache/token_cache.py and refuses ids with another content hash."""
    train, valid = flat(documents(1, 60)), flat(documents(2, 6))
    with h5py.File(tmp_path / "tokens.h5", "w") as f:
        f["train/ids"], f["valid/ids"] = train, valid
        f.attrs["content_hash"] = hashlib.sha256(train.tobytes() + valid.tobytes()).hexdigest()
        f.attrs.update({"valid_text_bytes": 100, "vocab_size": VOCAB, "eos_id": EOS})
        if damaged:
            f["valid/ids"][3] += 1
    run = subprocess.run(
        [sys.executable, str(NGRAM / "ngram_bound.py"), "--cache", str(tmp_path), "--orders", "3"],
        capture_output=True,
        text=True,
    )
    assert (run.returncode != 0) == damaged, run.stderr
    assert ("order 3" in run.stdout) != damaged
