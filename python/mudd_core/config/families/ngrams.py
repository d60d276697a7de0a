"""The fields of a model with a table of n-gram rows: their rules, and the number of weights of its matrices."""

from __future__ import annotations

from mudd_core.config.families.model_config import ModelConfig
from mudd_core.config.families.spans import layers_of

MOST_ORDER = 3


def readers(model: ModelConfig) -> frozenset[int]:
    """Return the layers before which the rows are added to the residual stream; empty without a table."""
    return layers_of(model.ngram_layers, model.n_layer) if model.ngram_rows else frozenset()


def orders_of(model: ModelConfig) -> list[str]:
    """Return the items of model.ngram_orders without spaces, such as ["2", "3"]."""
    return [order.strip() for order in model.ngram_orders.split(",")]


def ngram_weights(model: ModelConfig) -> int:
    """Return the number of weights in the gates and output matrices of all layers that read the rows."""
    return 2 * model.d_model * model.ngram_width * len(readers(model))


def ngram_faults(model: ModelConfig) -> list[str]:
    """Return the broken rules of the fields, one message each."""
    faults = []
    orders = orders_of(model)
    known = [str(order) for order in range(1, MOST_ORDER + 1)]
    if not set(orders) <= set(known) or len(set(orders)) < len(orders):
        faults.append(
            f"model.ngram_orders: expected different numbers from 1 to {MOST_ORDER} such as 2,3, got "
            f"'{model.ngram_orders}'"
        )
    try:
        layers_of(model.ngram_layers, model.n_layer)
    except ValueError as error:
        faults.append(f"model.ngram_layers: {error}")
    return faults
