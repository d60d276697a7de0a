"""The mixture-of-experts benchmark of MLPerf: `launch.py clm KEY=VALUE ...`, and its compliance log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from mudd_core.config import Config
from mudd_core.programs.program import CommandLine, Program, assigned_names, is_yml

if TYPE_CHECKING:
    from mudd_core.programs.resolved import Resolved
    from mudd_core.programs.row import Row
    from mudd_core.run.report.style import ComplianceLog, Style


class Benchmark(Program):
    """The program of the mixture-of-experts benchmark."""

    name, grammar = "moe", "hydra"
    commands = ("clm",)
    files: ClassVar[Mapping[str, str]] = {"run_clm.py": "clm"}
    of_device = True

    def rows(self) -> tuple[Row, ...]:
        """Return the keys of the benchmark's config tree."""
        from mudd_core.programs.moe.keys import ROWS

        return ROWS

    def claims(self, asked: CommandLine) -> bool:
        """Return whether the command is clm, or has no config but keys that only the benchmark has."""
        from mudd_core.programs.detect import known_alone

        if is_yml(asked.config) or asked.command in self.commands:
            return not is_yml(asked.config)
        rows = {row.name: row for row in self.rows()}
        return not asked.config and any(known_alone(rows, assigned_names(asked.words)))

    def resolve(self, asked: CommandLine) -> Resolved:
        """Return the command as an ordinary config; raise UserError that names a wrong key."""
        from mudd_core.programs.moe.hydra import resolve

        return resolve(asked)

    def style(self, config: Config) -> type[Style]:
        """Return the benchmark's log lines."""
        from mudd_core.programs.moe.style import MoeStyle

        return MoeStyle

    def compliance_log(self) -> type[ComplianceLog] | None:
        """Return the MLPerf log."""
        from mudd_core.programs.moe.mllog import BenchmarkLog

        return BenchmarkLog


PROGRAM = Benchmark()
