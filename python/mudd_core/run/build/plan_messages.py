"""The bytes that a node of a planned run sends in a step, and the seconds that a link needs for them."""

from __future__ import annotations

from mudd_core.base.units import bytes_text
from mudd_core.run.build.memory_plan import MemoryPlan

_LINK = 10  # Gb/s of the link that the line names


def message_lines(plan: MemoryPlan) -> list[str]:
    """Return the lines about messages between nodes; none for one node, which sends none."""
    wire = plan.config.mesh.wire
    if plan.place.nodes == 1:
        return (
            []
            if wire == "fp32"
            else [f"  messages      none between ranks of one node: mesh.wire={wire} has no effect"]
        )
    mesh, nodes = plan.config.mesh, plan.place.nodes
    if mesh.zero == 3 or mesh.expert > 1:  # also token rows, or weights in every graph run
        return ["  messages      launch.py scale predicts their bytes and seconds on this mesh"]
    sent = plan.trained * (nodes - 1) / nodes
    gradients, weights = mesh.gradient_bytes * sent, 4 * sent
    seconds = 8 * (gradients + weights) / (_LINK * 1e9)
    return [
        f"  messages      a node sends up to {bytes_text(round(gradients))} of gradients ({wire}) and "
        f"{bytes_text(round(weights))} of weights in a step:",
        f"                {seconds:.3g} s on a link of {_LINK} Gb/s; launch.py scale predicts how long a step waits",
    ]
