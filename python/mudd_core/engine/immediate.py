"""A whole model through the immediate executor: the reference of the planned graph, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

from mudd_core import _core
from mudd_core.base.types import Array
from mudd_core.config import ModelConfig
from mudd_core.engine.planned import tree_sum
from mudd_core.graph import scopes, tape
from mudd_core.graph.recording import Immediate, running, taped
from mudd_core.models import Batch, model_function


def sums_and_gradients(
    config: ModelConfig, store: _core.ParamStore, arrays: Mapping[str, Array], shards: int, precision: str
) -> tuple[float, float, dict[str, Array]]:
    """(loss in nats summed over targets, counted targets, gradients of that sum by name) of a checked batch.

    shards: logical shards of the sums. Auxiliary losses are in the sum.
    """
    scope = Immediate(store)
    cuts = scopes.shards(arrays["inputs"].shape[0], shards)
    with running(scope), cuts, scopes.precision(precision):
        hidden = model_function(config)(config, Batch.of(arrays), None)
        loss, count = (taped(one) for one in hidden.loss(arrays["targets"])[:2])
        aux = [taped(hidden.aux.loss(arrays["targets"]))] if hidden.aux else []
        tape.backward(loss, *(one for one in aux if one.recorded))  # those of frozen routers are not
    total = tree_sum(loss.data)
    for further in aux:
        total += tree_sum(further.data)
    gradients = {name: leaf.grad for name, leaf in scope.leaves.items() if leaf.grad is not None}
    return total, tree_sum(count.data), gradients
