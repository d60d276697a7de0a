"""Folders of Gemma 3 that also have a model for images: the settings and the tensors of the language model in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from mudd_core.base.types import JsonObject
from mudd_core.interop.settings import Reader, Settings

T = TypeVar("T")

WITH_IMAGES, _TEXT = "gemma3", "gemma3_text"
# Settings of the whole model that concern only images, or that the language model has itself.
_OF_IMAGES = frozenset(
    (
        *("architectures", "boi_token_index", "eoi_token_index", "image_token_index", "initializer_range"),
        *("mm_tokens_per_image", "model_type", "text_config", "vision_config"),
    )
)
# The language model's names in files of transformers 4 and 5.
_LANGUAGE_MODEL = re.compile(r"language_model\.model\.|model\.language_model\.")
_HEAD = "language_model.lm_head."


def text_settings(settings: Settings) -> JsonObject:
    """Return the settings of the language model. A model without images has only these.

    Settings of the whole model that are not about images are added, so that they are checked too. Raise ValueError if
    there is no text_config.
    """
    if settings.get("model_type") != WITH_IMAGES:
        return dict(settings)
    text = settings.get("text_config")
    if not isinstance(text, Mapping):
        raise Reader("hf", settings).refusal("text_config", "the settings of the language model", text)
    whole = {name: value for name, value in settings.items() if name not in _OF_IMAGES}
    tied = settings.get("tie_word_embeddings")
    return {
        "model_type": _TEXT,
        **whole,
        **text,
        **({} if tied is None else {"tie_word_embeddings": tied}),
        "architectures": ["Gemma3ForCausalLM"],
    }


def text_name(name: str) -> str:
    """Return the name that a tensor of the language model has in a folder without a model for images."""
    match = _LANGUAGE_MODEL.match(name)
    return "model." + name[match.end() :] if match else name.replace(_HEAD, "lm_head.", 1)


def text_weights(weights: Mapping[str, T]) -> dict[str, T]:
    """Return the tensors with the names of a folder without a model for images, or as they are if there is none."""
    if not any(map(_LANGUAGE_MODEL.match, weights)):
        return dict(weights)
    return {text_name(name): tensor for name, tensor in weights.items()}
