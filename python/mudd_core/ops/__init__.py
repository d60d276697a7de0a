"""The fused ops by name. An op on NumPy arrays runs at once; on tensors of the tape it runs at once and is recorded; on
values of a graph that is being recorded it runs with the graph. `<op>_backward(gradient, *inputs, **options)` returns
the gradients of the inputs in their order, None for inputs without one.

Values are float32; indices are int32. Shape letters: B samples, T positions, R = B T rows, D width, F feed-forward
width, H query heads, G key and value heads, hd head width, V vocabulary, S shards. Axes written `...` may be any. A
wrong type raises TypeError, a wrong shape or value ValueError; both messages contain the op, the argument and the rule.
The functions are built from the declarations of the core (`_core.op_specs()`); their types are in __init__.pyi.
"""

from typing import Never

from mudd_core.base.arguments.known import unknown
from mudd_core.base.other_names import OPS
from mudd_core.graph.recording import Like as Like
from mudd_core.ops.call import custom, functions

_functions = functions()
globals().update(_functions)
__all__ = ["custom", *_functions]


def __getattr__(name: str) -> Never:
    raise unknown("ops", name, OPS)
