"""The model types that llama.cpp and mudd_core have, as a table: settings and tensor names of transformers in GGUF.

A type is one entry of TYPES. Fields and tensors of a config.json without an entry are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mudd_core.base.types import Json, JsonObject
from mudd_core.checkpoint.gguf_file import uint32
from mudd_core.interop.gguf import fields, places
from mudd_core.interop.gguf.needed import gemma3, olmo3, smollm3, square
from mudd_core.interop.hf_rows import size_of


def _nothing(settings: JsonObject) -> JsonObject:
    """Return the settings that depend on others: none."""
    return {}


@dataclass(frozen=True)
class GgufType:
    """A model type of transformers in GGUF.

    architecture: llama.cpp's name. places: by the names of transformers in a block, or outside of the blocks, without
    .weight or .bias; `*` is the number of an expert. fields: the encoded fields of the settings, by names without the
    architecture. fixed: settings with the values that llama.cpp computes. needed: as fixed, for values that depend on
    other settings. has_windows: llama.cpp has the sliding windows. needs_head: a tied head is written as a copy of the
    embedding, because llama.cpp reads no file without a head.
    """

    model_type: str
    architecture: str
    places: places.Places
    fields: Callable[[JsonObject], dict[str, bytes]]
    fixed: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)
    needed: Callable[[JsonObject], JsonObject] = _nothing
    has_windows: bool = False
    needs_head: bool = False

    def refusal(self, settings: JsonObject) -> str:
        """Return the setting that llama.cpp does not compute, as part of a message; empty if there is none."""
        needed = {name: (value,) for name, value in self.needed(settings).items()}
        for name, values in {**self.fixed, **needed}.items():
            given = settings.get(name)
            if given is not None and given not in values:
                known = " or ".join(str(value) for value in values)
                return (
                    f"{name} {known}, the only one that llama.cpp computes for {self.model_type}, got {given}"
                )
        scaling = fields.rope_of(settings).get("rope_type", "default")
        if scaling == "llama3" and self.architecture != "llama":
            return f"rope_type default or linear for {self.model_type} in llama.cpp, got {scaling}"
        return ""

    def encoded(self, settings: JsonObject) -> dict[str, bytes]:
        """Return the encoded fields of a config.json by their names in GGUF."""
        found = {"context_length": uint32(self.context_length(settings)[0]), **self.fields(settings)}
        return {f"{self.architecture}.{name}": value for name, value in found.items()}

    def context_length(self, settings: JsonObject) -> tuple[int, int]:
        """Return (the longest sequence for llama.cpp, the model's).

        Up to the length of the window, sliding windows have no effect, so llama.cpp does not need them.
        """
        longest = size_of(settings, "n_positions" if "n_positions" in settings else "max_position_embeddings")
        window = None if self.has_windows else settings.get("sliding_window")
        return min(longest, window if isinstance(window, int) and window else longest), longest


TYPES: Mapping[str, GgufType] = {
    one.model_type: one
    for one in (
        GgufType("llama", "llama", places.LLAMA, fields.rotary),
        GgufType("mistral", "llama", places.LLAMA, fields.rotary),
        GgufType("mixtral", "llama", places.MIXTRAL, fields.mixture),
        GgufType("qwen2", "qwen2", places.QWEN, fields.rotary),
        GgufType("qwen3", "qwen3", places.QWEN, fields.rotary, {"attention_bias": (False,)}),
        GgufType(
            "gemma3_text",
            "gemma3",
            places.GEMMA3,
            fields.windowed,
            {"attention_bias": (False,), "hidden_activation": ("gelu_pytorch_tanh", "gelu_new")},
            gemma3,
            has_windows=True,
        ),
        GgufType("qwen3_moe", "qwen3moe", places.QWEN3_MOE, fields.qwen3_moe),
        GgufType(
            "smollm3",
            "smollm3",
            places.LLAMA,
            fields.rotary,
            {"attention_bias": (False,), "mlp_bias": (False,)},
            smollm3,
        ),
        GgufType("phi3", "phi3", places.PHI3, fields.phi3, needed=square),
        GgufType(
            "olmo2",
            "olmo2",
            places.OLMO2,
            fields.rotary,
            {"attention_bias": (False,)},
            square,
            needs_head=True,
        ),
        GgufType(
            "gpt_neox",
            "gptneox",
            places.GPT_NEOX,
            fields.gpt_neox,
            {
                "attention_bias": (True,),
                # llama.cpp computes gelu by its approximation with tanh, which differs by less than 5e-4.
                "hidden_act": ("gelu", "gelu_new", "gelu_pytorch_tanh"),
            },
            needs_head=True,
        ),
        GgufType(
            "olmo3",
            "olmo2",
            places.OLMO2,
            fields.windowed,
            {"attention_bias": (False,)},
            olmo3,
            has_windows=True,
            needs_head=True,
        ),
        GgufType(
            "gpt2",
            "gpt2",
            places.GPT2,
            fields.gpt2,
            {
                "activation_function": ("gelu_new",),
                "scale_attn_weights": (True,),
                "scale_attn_by_inverse_layer_idx": (False,),
            },
        ),
    )
}


def gguf_type(settings: JsonObject) -> GgufType:
    """Return the type of a config.json that llama.cpp computes.

    Raise ValueError for another type, and for a setting that llama.cpp does not compute.
    """
    name = settings.get("model_type")
    found = TYPES.get(name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"expected a model type of {', '.join(TYPES)}, got {name}")
    if refusal := found.refusal(settings):
        raise ValueError(f"expected {refusal}")
    return found
