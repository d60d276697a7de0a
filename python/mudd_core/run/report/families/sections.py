"""The list of what families show: each entry decides by the config of the model whether it has something to show."""

from __future__ import annotations

from mudd_core.run.report.families.connections import connections
from mudd_core.run.report.families.experts import experts
from mudd_core.run.report.families.mup import mup
from mudd_core.run.report.families.slots import slots

FAMILY_SECTIONS = (experts, connections, slots, mup)
