"""The config.json of transformers as a mudd_core model config, and the other way round.

transformers ignores names in a config.json that no class has. Such a name is rejected here with its value, because the
model may need it. hf_tables.py has the settings.
"""

from __future__ import annotations

from mudd_core.base.types import JsonObject
from mudd_core.config.families import GPT2Config, MixtralConfig, ModelConfig, TransformerPPConfig
from mudd_core.interop.hf_images import WITH_IMAGES, text_settings
from mudd_core.interop.hf_kind import Kind
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.hf_tables import KINDS
from mudd_core.interop.settings import Reader, Settings

READABLE = (*KINDS, WITH_IMAGES)  # the values of model_type that can be read
FAMILIES = ("transformer_pp", "gpt2", "mixtral")


def kind_of(settings: Settings) -> Kind:
    """Return the kind of a config.json. Raise ValueError for an unsupported one."""
    name = settings.get("model_type")
    if not isinstance(name, str) or name not in KINDS:
        raise Reader("hf", settings).refusal("model_type", f"one of {', '.join(READABLE)}", name)
    return KINDS[name]


def model_config(settings: Settings) -> HfModel:
    """Return the mudd_core model config. Raise ValueError, with the setting's name, if there is no equivalent."""
    settings = text_settings(settings)
    return kind_of(settings).read(settings)


def original_config(model: ModelConfig) -> JsonObject:
    """Return the config.json for a model config. Raise ValueError for a family or feature that transformers lacks."""
    if isinstance(model, TransformerPPConfig):
        return _kind_with(model, TransformerPPConfig).write(model)
    if isinstance(model, MixtralConfig):
        return KINDS["qwen3_moe" if model.qk_norm else "mixtral"].write(model)
    if isinstance(model, GPT2Config):
        return _kind_with(model, GPT2Config).write(model)
    raise ValueError(f"[hf] family: expected one of {', '.join(FAMILIES)}, got '{model.family}'")


def _kind_with(model: TransformerPPConfig | GPT2Config, family: type[HfModel]) -> Kind:
    """Return the first kind of a family that has all features of the model, or the one that lacks the fewest of them.

    lost_fields then rejects the features that it lacks.
    """
    ours = model.settled()

    def lost(kind: Kind) -> int:
        try:
            theirs = kind.read(kind.write(model)).settled()
        except ValueError:
            return len(ours.__dataclass_fields__)
        return sum(getattr(ours, name) != getattr(theirs, name) for name in ours.__dataclass_fields__)

    return min((kind for kind in KINDS.values() if kind.family is family), key=lost)
