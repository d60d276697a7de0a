"""The sections of a run's page, in their order. A new section is a function here: docstring of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from mudd_core.run.report.families.sections import FAMILY_SECTIONS
from mudd_core.run.report.page.curves import curves
from mudd_core.run.report.page.machines import machines
from mudd_core.run.report.page.overview import overview
from mudd_core.run.report.page.records import Records
from mudd_core.run.report.page.samples import samples
from mudd_core.run.report.page.section import Section
from mudd_core.run.report.page.settings import settings

MakeSection: TypeAlias = Callable[[Records], Section | None]

SECTIONS: tuple[MakeSection, ...] = (overview, curves, samples, *FAMILY_SECTIONS, machines, settings)
