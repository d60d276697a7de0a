"""The models of the race: each is a config of configs/ and the arguments that change it.

All have the sizes and the data of configs/small.py. A model with tables of rows has a twin with few rows
(`small_table`): its step time has everything except the update of rows that a step does not touch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE = "base"
_ROWS = "model.family=examples/ngram_rows.py:NgramRows"
_MUDD = ("model.family=examples/mudd_every.py:MuddEvery", "model.every=1")
SMALL_TABLE = 4096


@dataclass(frozen=True)
class Contestant:
    """A model.

    table: rows, width and number of tables that a step looks up; None without tables of n-grams. timed_as: the
    contestant whose step time counts; empty = its own.
    """

    name: str
    arguments: tuple[str, ...] = ()
    config: str = "small.py"
    table: tuple[int, int, int] | None = None
    timed_as: str = ""

    @property
    def clock(self) -> str:
        """The name whose step time counts."""
        return self.timed_as or self.name

    def small_table(self) -> tuple[str, ...]:
        """Return the arguments of the same model with few rows."""
        return tuple(
            f"model.rows={SMALL_TABLE}" if one.startswith("model.rows=") else one for one in self.arguments
        )


def rows_of_ngrams(
    name: str,
    rows: int = 1 << 16,
    width: int = 64,
    rate: float = 8.0,
    decay: float = 0.0,
    *more: str,
    orders: str = "2,3",
    optimizer: str = "adamw",
    timed_as: str = "",
) -> Contestant:
    """Return Transformer++ with tables of n-grams, whose rate is `rate` times the rate of the other parameters."""
    groups = (
        f"{optimizer}: rows.*, lr_factor={rate}, weight_decay={decay}; adamw: embed, head, weight_decay=0"
    )
    arguments = (
        _ROWS,
        f"model.orders={orders}",
        f"model.rows={rows}",
        f"model.row_width={width}",
        "model.end_id=0",
        *more,
        "optim.decay=no_norm_no_bias",
        f"optim.groups={groups}",
    )
    return Contestant(name, arguments, table=(rows, width, len(orders.split(","))), timed_as=timed_as)


_ROW_WISE = "bench/race/row_optimizers.py"

CONTESTANTS = (
    Contestant(BASE),
    rows_of_ngrams("rows"),
    rows_of_ngrams("rows_rate_2", 1 << 16, 64, 2.0),
    rows_of_ngrams("rows_rate_32", 1 << 16, 64, 32.0),
    rows_of_ngrams("rows_decay", 1 << 16, 64, 8.0, 0.1),
    rows_of_ngrams("rows_10k", 10_000),
    rows_of_ngrams("rows_1m", 1_000_000),
    rows_of_ngrams("rows_width_128", 1 << 16, 128),
    rows_of_ngrams("rows_values", 1 << 16, 64, 8.0, 0.0, "model.row_place=values"),
    rows_of_ngrams("rows_two_layers", 1 << 16, 64, 8.0, 0.0, "model.row_layers=1,3"),
    rows_of_ngrams("rows_no_gate", 1 << 16, 64, 8.0, 0.0, "model.gate=false", "model.row_layers=0"),
    Contestant(
        "wide_embedding",
        (_ROWS, "model.orders=1", "model.row_width=512", "model.row_layers=0", "model.gate=false"),
    ),
    Contestant("token_values", (_ROWS, "model.orders=1", "model.row_width=192", "model.row_place=values")),
    Contestant("mudd", _MUDD, "muddformer/small.py"),
    Contestant("mudd_last", (*_MUDD, "model.first=5"), "muddformer/small.py"),
    Contestant("batch_8", ("train.batch_size=8", "optim.lr=3.5e-3")),
    Contestant("muon", ("optim.name=muon",)),
    Contestant("muon_rate_2", ("optim.name=muon", "optim.lr=5e-3")),
    rows_of_ngrams("rows_decay_3", 1 << 16, 64, 8.0, 0.3, timed_as="rows"),
    rows_of_ngrams("rows_1m_decay", 1_000_000, 64, 8.0, 0.1, timed_as="rows_1m"),
    *(
        rows_of_ngrams(
            f"rows_{name}_{rate}", 1 << 16, 64, rate, decay, optimizer=f"{_ROW_WISE}:{name}", timed_as="rows"
        )
        for name, rate, decay in (("adagrad", 16, 0.05), ("adagrad", 64, 0.0125), ("rms", 32, 0.025))
    ),
    *(
        rows_of_ngrams(
            f"rows_lazy_{rate}",
            1 << 16,
            64,
            rate,
            decay,
            optimizer="bench/race/lazy_rows.py:lazy_adagrad",
            timed_as="rows",
        )
        for rate, decay in ((16, 0.05), (64, 0.0125))
    ),
)


def chosen(names: str) -> list[Contestant]:
    """Return the contestants of a list of names, with the base first; all of them for an empty list."""
    known = {one.name: one for one in CONTESTANTS}
    wanted = [name.strip() for name in names.split(",") if name.strip()] or list(known)
    for name in wanted:
        if name not in known:
            raise SystemExit(f"[race] --only: expected names of {', '.join(known)}, got '{name}'")
    return [known[name] for name in dict.fromkeys((BASE, *wanted))]
