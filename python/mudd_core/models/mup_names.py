"""The names that mu-Transformer gives to the parameters of a muP transformer."""

from __future__ import annotations

_WHOLE = {
    "embed": "w_e",
    "head": "w_u",
    "head_bias": "b_u",
    "embed_norm.gain": "g_e",
    "final_norm.gain": "g_u",
}
_MATRICES = {
    "attn.q": "aq",
    "attn.k": "ak",
    "attn.v": "av",
    "attn.o": "ao",
    "ffn.gate": "fi",
    "ffn.up": "fi",
    "ffn.down": "fo",
}
_GAINS = {"attn.norm": "g_a", "ffn.norm": "g_f", "attn.q_norm": "g_aq", "attn.k_norm": "g_ak"}


def original_name(ours: str) -> tuple[str, int | None]:
    """The original's name of our parameter, and its layer; None for one that is in no block."""
    if ours in _WHOLE:
        return _WHOLE[ours], None
    _, layer, part = ours.split(".", 2)
    owner, _, kind = part.rpartition(".")
    return _GAINS[owner] if kind == "gain" else f"{kind}_{_MATRICES[owner]}", int(layer)
