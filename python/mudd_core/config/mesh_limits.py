"""What a mesh refuses besides axes: one list for the checks, `launch.py scale --axes` and the tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """A refusal. mesh: the sizes that refuse. asked: what they refuse. why: the reason and the way out."""

    mesh: str
    asked: str
    why: str


def _measures(mesh: str, whole: str) -> Limit:
    return Limit(
        mesh,
        "`log.weights`, `log.activations`",
        "no rank has the whole weights that log.weights and log.activations measure; "
        f"set log.weights=false log.activations=false, or use {whole}",
    )


PISSA = Limit(
    "`mesh.zero=3`",
    "`lora.init=pissa`",
    "pissa needs whole matrices, which mesh.zero=3 cuts; take mesh.zero=1",
)
CUT_MEASURES = _measures("`mesh.zero=3` over several nodes", "mesh.zero=1")
EXPERT_MEASURES = _measures("`mesh.expert` above 1", "mesh.expert=1")
CUT_SLOTS = Limit(
    "`mesh.zero=3` over several nodes",
    "growing the slots of a TokenFormer",
    "slots grow only where a node has whole weights: begin with mesh.zero=1, and go on with mesh.zero=3 from its "
    "checkpoint",
)
LIMITS = (PISSA, CUT_MEASURES, CUT_SLOTS, EXPERT_MEASURES)
