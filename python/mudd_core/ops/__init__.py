"""The fused ops by name. Each takes NumPy arrays (runs at once), tape tensors (runs at once and is recorded), or
values of a graph that is being recorded (runs when planned). `<op>_backward(gradient, *inputs, **options)` returns the
gradients of the inputs, in their order, None for those that have none.

All numbers are float32; indices are int32. Shape letters: B samples, T positions, R = B T rows, D width, F
feed-forward width, H query heads, G key and value heads, hd head width, V vocabulary, S shards. Axes written `...`
may be any. A wrong type raises TypeError, a wrong shape or value ValueError; both name op, argument and rule.
The functions are made from the declarations of the core (`_core.op_specs()`); their types are in __init__.pyi.
"""

from typing import Never

from mudd_core.base.other_names import OPS, unknown
from mudd_core.graph.recording import Like as Like
from mudd_core.ops.call import custom, functions

_functions = functions()
globals().update(_functions)
__all__ = ["custom", *_functions]


def __getattr__(name: str) -> Never:
    raise unknown("ops", name, OPS)
