"""Bake-off: a comparison of model families trained on the same text at equal size or equal cost.

Runs are ordinary training runs, so they resume. Seeds are paired (the same data order for every candidate), and every
difference has a confidence interval.
"""

from mudd_core.tools.bakeoff.comparison import Candidate, Comparison, equal_flops, equal_parameters
from mudd_core.tools.bakeoff.result import compare, read_curves
from mudd_core.tools.bakeoff.runs import run_all

__all__ = [
    "Candidate",
    "Comparison",
    "compare",
    "equal_flops",
    "equal_parameters",
    "read_curves",
    "run_all",
]
