"""jax-lm-training: `python -m mudd_core.train` with long flags, and `python -m mudd_core.preprocess`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mudd_core.config import Config
from mudd_core.programs.program import CommandLine, Program, assigned_names, flag_names

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved
    from mudd_core.programs.row import Row
    from mudd_core.run.report.style import Style


class JaxLm(Program):
    """The program of jax-lm-training."""

    name = grammar = "jax_lm"
    commands = ("jax_lm.train",)
    flags = True

    def rows(self) -> tuple[Row, ...]:
        """Return the flags of the program's training command."""
        from mudd_core.programs.jax_lm.keys import ROWS

        return ROWS

    def claims(self, asked: CommandLine) -> bool:
        """Return whether the command is the program's own, or has the program's flags and no config."""
        from mudd_core.programs.detect import known_alone

        if asked.command in self.commands:
            return True
        if asked.config:
            return False
        rows, names = {row.name: row for row in self.rows()}, list(flag_names(asked.words))
        if any(known_alone(rows, names)):
            return True
        # `train` with only these flags, some of which mudd_core has as well
        plain = bool(names) and not any(assigned_names(asked.words))
        return asked.command == "train" and plain and all(name in rows for name in names)

    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary config; UserError names the wrong flag."""
        from mudd_core.programs.jax_lm.grammar import resolve

        return resolve(asked)

    def style(self, config: Config) -> type[Style]:
        """Return the program's log lines."""
        from mudd_core.programs.jax_lm.style import JaxLmStyle

        return JaxLmStyle


PROGRAM = JaxLm()
