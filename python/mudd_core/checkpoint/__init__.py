"""Checkpoints: folders `step-<n>` that appear whole or not at all, and are verified before they are used.

A tensor named `plane/name` (an optimizer moment) goes to the shard files of its plane; a name without a slash
is a weight and goes to `model-*.safetensors`, which other tools can open. `state` is any JSON.
docs/checkpoints.md has the format, the order of a save, and the test behind each promise.
"""

from mudd_core.checkpoint.fingerprint import final_hash
from mudd_core.checkpoint.load import Checkpoint, PassedOver, load_newest, load_step
from mudd_core.checkpoint.save import save, space_for
from mudd_core.checkpoint.state_part import StatePart, is_weight, whole_tensors
from mudd_core.checkpoint.steps import list_steps, recover, step_folder
from mudd_core.checkpoint.stored import whole_parts
from mudd_core.checkpoint.verify import drop_after, keep_last, verify_step
from mudd_core.checkpoint.weights import load_weights

__all__ = [
    "Checkpoint",
    "PassedOver",
    "StatePart",
    "drop_after",
    "final_hash",
    "is_weight",
    "keep_last",
    "list_steps",
    "load_newest",
    "load_step",
    "load_weights",
    "recover",
    "save",
    "space_for",
    "step_folder",
    "verify_step",
    "whole_parts",
    "whole_tensors",
]
