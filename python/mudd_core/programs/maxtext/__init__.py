"""The two forks of MaxText, MUDDFormer's and TokenFormer's program, which are configured by yml files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from mudd_core.config import Config
from mudd_core.config.foreign import ALIASES
from mudd_core.programs.program import CommandLine, Program, is_yml

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved
    from mudd_core.programs.row import Row
    from mudd_core.run.report.style import Style
    from mudd_core.run.store.metrics_file import Kind


class MaxText(Program):
    """The commands of MUDDFormer's and TokenFormer's programs, which both grew out of MaxText."""

    name = grammar = "maxtext"
    files: ClassVar[Mapping[str, str]] = {"train.py": ""}
    folder, config = "MaxText", "FILE.yml"
    of_device = True
    systems: ClassVar[Mapping[str, str]] = {
        name: f"{__name__}.{name}"
        for name in ("muddformer_jax", "muddformer_torch", "tokenformer_jax", "tokenformer_neox")
    }
    exports: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "muddformer": ("muddformer_torch", "muddformer_jax"),
        "tokenformer": ("tokenformer_neox", "tokenformer_jax"),
    }

    def rows(self) -> tuple[Row, ...]:
        """Return the keys of the yml files."""
        from mudd_core.programs.maxtext.keys import ROWS

        return ROWS

    def claims(self, asked: CommandLine) -> bool:
        """Return whether the config is a yml file, but not a name in configs/."""
        return is_yml(asked.config) and asked.config not in ALIASES

    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary config; raise UserError that names a wrong key."""
        from mudd_core.programs.maxtext.grammar import resolve

        return resolve(asked)

    def style(self, config: Config) -> type[Style]:
        """Return the log style of the program that has the model's family."""
        from mudd_core.programs.maxtext.muddformer_style import MuddformerStyle
        from mudd_core.programs.maxtext.style import TokenFormerStyle

        return TokenFormerStyle if config.model.family == "tokenformer" else MuddformerStyle

    def metrics_kind(self, config: Config) -> Kind:
        """Return the kind of log.metrics_file: TokenFormer's program writes a folder, MUDDFormer's a file."""
        return "folder" if config.model.family == "tokenformer" else "objects"


PROGRAM = MaxText()
