"""Compute bits per byte of Kneser-Ney n-grams on the tokens and split of a token cache.

A model must beat this score.

    python bench/ngram/ngram_bound.py --cache runs/cache/<fingerprint>
    python bench/ngram/ngram_bound.py --train train.npy --valid valid.npy --valid-bytes 586190 --vocab 4096

It predicts the same tokens as `launch.py --mode=validation` (contracts 15): every validation token except the first,
including the end-of-document tokens. Bits per byte = nats / (ln 2 x bytes of validation text).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
from kneser_ney import KneserNey

SUM_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Tokens:
    """Ids of both splits; `notes` has the hashes recorded in the cache."""

    train: NDArray[Any]
    valid: NDArray[Any]
    valid_bytes: int
    vocab: int
    eos: int
    notes: dict[str, str]


def load_cache(path: Path) -> Tokens:
    """Read mudd_core's HDF5 token cache: its folder, or the tokens.h5 in it."""
    import h5py  # type: ignore[import-untyped]

    with h5py.File(path / "tokens.h5" if path.is_dir() else path, "r") as f:
        facts = {k: v.decode() if isinstance(v, bytes) else v for k, v in f.attrs.items()}
        train, valid = f["train/ids"][...], f["valid/ids"][...]
    notes = {k: str(v) for k, v in facts.items() if k.endswith("_hash")}
    return Tokens(
        train, valid, int(facts["valid_text_bytes"]), int(facts["vocab_size"]), int(facts["eos_id"]), notes
    )


def token_hash(*ids: NDArray[Any]) -> str:
    """Return the SHA-256 of the ids of all arrays in order, in the cache's dtype."""
    whole = hashlib.sha256()
    for part in ids:
        whole.update(np.ascontiguousarray(part).tobytes())
    return whole.hexdigest()


def contexts_to_check(model: KneserNey, valid: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Return positions of contexts to check: validation text, starts of documents, and random unseen ones."""
    rng = np.random.default_rng(0)
    contexts, _ = model.contexts(valid)
    seen = contexts[rng.choice(len(contexts), min(count, len(contexts)), replace=False)]
    start = np.full((1, contexts.shape[1]), model.eos, np.int64)
    return np.concatenate([seen, start, rng.integers(0, model.vocab, (count, contexts.shape[1]))])


def measure(tokens: Tokens, order: int, checks: int) -> dict[str, Any]:
    """Train one model, check its sums, and score the validation tokens."""
    start = time.perf_counter()
    model = KneserNey(tokens.train, tokens.vocab, tokens.eos, order)
    error = model.worst_sum_error(contexts_to_check(model, tokens.valid, checks))
    if not error < SUM_TOLERANCE:
        raise SystemExit(f"order {order}: a distribution sums to one only within {error:.1e}")
    nats = model.nats(tokens.valid)[1:]
    return {
        "order": order,
        "bits_per_byte": float(nats.sum()) / (math.log(2.0) * tokens.valid_bytes),
        "nats_per_token": float(nats.mean()),
        "targets": int(nats.size),
        "worst_sum_error": error,
        "ngrams": [int(level.keys.size) for level in model.levels],
        "discounts": [list(level.discounts) for level in model.levels],
        "seconds": time.perf_counter() - start,
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", type=Path, help="token cache of mudd_core")
    p.add_argument("--train", type=Path, help=".npy of train ids, every document followed by eos")
    p.add_argument("--valid", type=Path, help=".npy of validation ids")
    p.add_argument("--valid-bytes", type=int, help="bytes of validation text, without eos")
    p.add_argument("--vocab", type=int)
    p.add_argument("--eos", type=int, default=0)
    p.add_argument("--orders", type=int, nargs="+", default=[3, 5])
    p.add_argument("--checks", type=int, default=50, help="contexts of each kind whose sum is checked")
    p.add_argument("--json", type=Path, help="also write the numbers here")
    return p.parse_args()


def main() -> int:
    """Print hashes and one line per order."""
    a = parse()
    if a.cache is not None:
        tokens = load_cache(a.cache)
    elif a.train is not None and a.valid is not None and a.valid_bytes and a.vocab:
        tokens = Tokens(np.load(a.train), np.load(a.valid), a.valid_bytes, a.vocab, a.eos, {})
    else:
        print("give --cache, or --train, --valid, --valid-bytes and --vocab", file=sys.stderr)
        return 2
    print(f"train {tokens.train.size:,} tokens  sha256 {token_hash(tokens.train)}")
    print(f"valid {tokens.valid.size:,} tokens  sha256 {token_hash(tokens.valid)}")
    print(f"both                    sha256 {token_hash(tokens.train, tokens.valid)}")
    for name, value in tokens.notes.items():
        print(f"the cache says {name} {value}")
    if tokens.notes.get("content_hash", "") not in ("", token_hash(tokens.train, tokens.valid)):
        raise SystemExit("the ids are not those that the cache recorded")
    print(f"valid {tokens.valid_bytes:,} bytes, vocabulary {tokens.vocab:,}")
    rows = [measure(tokens, order, a.checks) for order in a.orders]
    for r in rows:
        print(
            f"modified Kneser-Ney order {r['order']}: {r['bits_per_byte']:.4f} bits per byte, "
            f"{r['nats_per_token']:.4f} nats per token over {r['targets']:,} targets "
            f"(sums within {r['worst_sum_error']:.0e}, {r['seconds']:.0f} s)"
        )
    if a.json is not None:
        a.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
