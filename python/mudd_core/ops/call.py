"""From the face of an op to the executor that its inputs ask for, and the check of what users pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mudd_core.graph import tape
from mudd_core.graph.recording import Value

# The inputs of one projection of pattention.
_TOKENS = ("key", "value", "key_bias?", "value_bias?")
# Inputs of each op, in order, for messages; those that may be missing end in '?', the one that may repeat in '*'.
INPUTS = {
    "activation": ("x",),
    "add": ("a", "b"),
    "attention": ("q", "k", "v", "segments?", "key_mask?", "k_cache?", "v_cache?"),
    "cross_entropy": ("h", "head", "targets", "bias?"),
    "depth_mix": (
        "bias",
        "w1?",
        "w2?",
        "generator_gain?",
        "gain_0?",
        "gain_1?",
        "gain_2?",
        "gain_3?",
        "newest?",
        "states*",
    ),
    "dropout": ("x", "residual?"),
    "embedding": ("ids?", "table?", "residual?"),
    "glu": ("gate", "up"),
    "grouped_gemm": ("x", "gates", "experts", "gate", "up", "down", "residual?"),
    "layer_norm": ("x", "gain?", "bias?"),
    "linear": ("x", "w", "bias?", "residual?"),
    "lion": ("w", "gradient", "moment"),
    "adamw": ("w", "gradient", "first", "second"),
    "moe_balance": ("targets", "metrics*"),
    "moe_route": ("x", "w", "segments?", "key_mask?"),
    "pattention": ("x", *_TOKENS, "residual?", *_TOKENS * 7),
    "rms_norm": ("x", "gain?"),
    "rope": ("x", "positions?"),
    "sgd": ("w", "gradient", "moment"),
}
INDICES = {"experts", "ids", "key_mask", "positions", "segments", "targets"}


def checked(op: str, name: str, value: Any, dtype: str) -> Any:
    """A tensor of the tape as it is, anything else as an array; of another dtype: TypeError."""
    if value is None:
        raise TypeError(f"[{op}] {name}: expected an array, got None")
    array = value if isinstance(value, tape.Tensor) else tape.as_array(value)
    if array.dtype != dtype:
        raise TypeError(f"[{op}] {name}: expected {dtype}, got {array.dtype}")
    return array


def inputs_of(op: str, inputs: list[Any]) -> list[Any]:
    """The inputs as arrays or tensors of the tape, checked one by one; TypeError names op and argument."""
    arrays, labels = [], INPUTS[op]
    if labels[-1].endswith("*"):
        labels = labels[:-1] + (labels[-1].rstrip("*"),) * (len(inputs) - len(labels) + 1)
    for label, value in zip(labels, inputs, strict=False):  # backward has no caches
        name = label.rstrip("?")
        missing = value is None and name != label
        dtype = "int32" if name in INDICES else "float32"
        arrays.append(None if missing else checked(op, name, value, dtype))
    return arrays


def apply(op: str, inputs: list[Any], **options: Any) -> Any:
    """Records the op if an input belongs to a graph, else runs it at once (on the tape, if one is a tensor of it)."""
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    if not recorders:
        inputs = inputs_of(op, inputs)
    while inputs and inputs[-1] is None:
        inputs.pop()
    if recorders:
        return recorders[0].apply(op, inputs, options)
    return tape.call_op(op, inputs, options)


def backward(op: str, gradient: Any, inputs: list[Any], **options: Any) -> Any:
    """Gradients of the inputs, given those of the outputs (one array or a tuple), from a fresh forward pass."""
    arrays = [i.data if isinstance(i, tape.Tensor) else i for i in inputs_of(op, inputs)]
    if op in ("cross_entropy", "moe_balance"):  # of their outputs only the loss has a gradient, by default 1
        if gradient is not None and np.asarray(gradient).dtype != np.float64:
            raise TypeError(f"[{op}] dloss: expected float64, got {np.asarray(gradient).dtype}")
        gradients = [None if gradient is None else np.asarray(gradient), None, None]
    else:  # of an op with several results: a tuple, None for those that nobody used
        several = gradient if isinstance(gradient, tuple | list) else (gradient,)
        given = [checked(op, "gradient", g, "float32") if g is not None else None for g in several]
        if all(g is None for g in given):
            raise TypeError(f"[{op}] gradient: expected an array, got None")
        gradients = [g.data if isinstance(g, tape.Tensor) else g for g in given]
        if op in ("adamw", "lion", "sgd"):  # of the new weights alone, or of moments too
            gradients += [None] * ((3 if op == "adamw" else 2) - len(gradients))
        if op == "moe_route":  # experts have none, and metrics seldom one
            gradients += [None] * (3 - len(gradients))
    return tape.backward_of(op, arrays, gradients, options)


def custom(forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Any) -> Any:
    """Two NumPy functions as an op, in either executor.

    forward(*inputs) returns one float32 array or a tuple; backward(*output_gradients, *inputs) returns one gradient per
    input (None where there is none). Output shapes are learned from one call on zeros.
    """
    recorders = [i.recorder for i in inputs if isinstance(i, Value)]
    if recorders:
        return recorders[0].custom(forward, backward, list(inputs))
    return tape.call_custom(forward, backward, list(inputs))
