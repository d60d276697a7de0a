"""The memory in a plan: the bytes of the program, the peak of a rank by kind, and the meshes that fit."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from mudd_core.base.units import bytes_text
from mudd_core.engine import memory
from mudd_core.run.build.memory_plan import MemoryPlan
from mudd_core.run.build.mesh_search import Choice
from mudd_core.run.build.place import Place

# Measured bytes that the training loop adds to the program: batches, logs, buffers of a save.
_LOADED_LATER = 13 * memory.MIB
# Measured resident bytes of launch.py before planning, and the part of them that its libraries use.
_RESIDENT, _LIBRARIES = 46 * memory.MIB, 20 * memory.MIB
NO_FIT = "DOES NOT FIT"
_KINDS = {
    "program": "program",
    "weights": "weights",
    "moments": "optimizer moments",
    "gradients": "gradients",
    "packed": "packed copies of the weights",
    "mapped": "weights of the base, mapped from its file",
    "gathered": "weights gathered for two layers",
    "exchange": "buffers of messages to other nodes",
    "arena": "activations and scratch",
    "evaluation": "activations of validation",
    "saves": "copies for an asynchronous save",
}


def program_bytes(on_a_node: int) -> int:
    """Return the bytes of a rank's program, with libraries shared on a node. Call this before any planning."""
    return _program(memory.resident_bytes(), memory.file_bytes(), on_a_node)


def usual_program_bytes(on_a_node: int) -> int:
    """Return the same for launch.py on another machine, because this process may be a notebook."""
    return _program(_RESIDENT, _LIBRARIES, on_a_node)


def _program(resident: int, libraries: int, on_a_node: int) -> int:
    return resident - libraries + libraries // on_a_node + _LOADED_LATER


def memory_lines(
    plan: MemoryPlan, kinds: dict[str, int], node_memory: int, command: Callable[[Choice], str]
) -> tuple[bool, list[str]]:
    """Return True if a start has the memory, and lines: the peak of a rank, its parts, and other meshes."""
    peak, ranks, programs = sum(kinds.values()), plan.place.on_a_node, plan.place.on_a_node * kinds["program"]
    free, limit = memory.available_bytes()
    whose = "" if ranks == 1 else f" of a rank, {bytes_text(ranks * peak)} of a node of {ranks}"
    limit = (
        f"a node has {bytes_text(node_memory)} (--node-memory)"
        if node_memory
        else f"{limit} leaves {bytes_text(free)}"
    )

    def have(place: Place) -> int:
        return max(0, node_memory - place.on_a_node * kinds["program"]) if node_memory else free

    lines = [f"  memory        {bytes_text(peak)} at the peak{whose}; {limit}"]
    fits = ranks * peak - programs <= have(plan.place)
    if not fits and plan.place.world == 1:
        lines += indented(f"{NO_FIT}: {plan.advice(kinds, have(plan.place))}")
        if (found := plan.nearest(have)) is not None:
            lines += _mesh_that_fits(found, command, "the nearest mesh that fits is")
    lines += [
        f"    {bytes_text(kinds[kind]):>14}  {text}" for kind, text in _KINDS.items() if kinds.get(kind)
    ]
    meshes = [] if plan.place.world == 1 else _mesh_lines(plan, kinds, have, fits, command)
    return fits, lines + meshes


def _mesh_lines(
    plan: MemoryPlan,
    kinds: dict[str, int],
    have: Callable[[Place], int],
    fits: bool,
    command: Callable[[Choice], str],
) -> list[str]:
    """Return the memory of each mesh of these ranks and, if the plan does not fit, the nearest mesh that does.

    have: the bytes of a node for its ranks.
    """
    ranks, program = plan.place.on_a_node, kinds["program"]
    lines = [f"  {'meshes':<28}{'a rank':>12}{'a node':>12}"]
    for choice in plan.choices():
        node = choice.node_bytes + ranks * program
        now = " <- this plan" if choice.config.mesh == plan.config.mesh else ""
        note = now if choice.node_bytes <= have(plan.place) else f" does not fit{now}"
        lines.append(
            f"    {choice.words:<26}{bytes_text(choice.rank_bytes + program):>12}{bytes_text(node):>12}{note}"
        )
    if fits:
        return lines
    if (found := plan.nearest(have)) is None:
        return lines + indented(
            f"{NO_FIT} on any mesh with this train.batch_size: {plan.advice(kinds, have(plan.place))}"
        )
    return lines + _mesh_that_fits(found, command, f"{NO_FIT}; the nearest mesh that fits is")


def _mesh_that_fits(found: Choice, command: Callable[[Choice], str], begin: str) -> list[str]:
    """Return the lines about a mesh that fits, with the command that trains on it."""
    world, nodes = found.place.world, found.place.nodes
    ranks = f"{world} rank{'s' * (world > 1)}, {nodes} node{'s' * (nodes > 1)}"
    return [f"                {begin} {found.words} on {ranks}:", f"                {command(found)}"]


def indented(text: str) -> list[str]:
    """Return a message as lines, indented to the values of a plan."""
    return textwrap.wrap(text, 100, initial_indent=" " * 16, subsequent_indent=" " * 16)
