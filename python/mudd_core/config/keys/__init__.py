"""Every key, flag and variable of the original programs' commands, a row each; one module for each grammar."""

from mudd_core.config.keys import environment, hydra, jax_lm, maxtext, mu_transformer
from mudd_core.config.keys.row import COMMAND, WORKDIR, Fate, Key, Row, Value, mapped, noted, refused

TABLE: tuple[Row, ...] = (*maxtext.ROWS, *mu_transformer.ROWS, *hydra.ROWS, *jax_lm.ROWS, *environment.ROWS)


def rows_of(grammar: str) -> dict[str, Row]:
    """The rows of one grammar by name."""
    return {row.name: row for row in TABLE if row.grammar == grammar}


__all__ = [
    "COMMAND",
    "TABLE",
    "WORKDIR",
    "Fate",
    "Key",
    "Row",
    "Value",
    "mapped",
    "noted",
    "refused",
    "rows_of",
]
