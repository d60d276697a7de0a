"""A check that the sizes in a config.json agree with the shapes of the tensors."""

from __future__ import annotations

import re

from mudd_core.config.families import MixtralConfig
from mudd_core.interop.hf_rows import HfModel
from mudd_core.interop.hf_settings import kind_of
from mudd_core.interop.settings import Settings
from mudd_core.interop.system import Shapes

_LAYER = re.compile(r"(?:(?:model\.)?layers|(?:transformer\.)?h)\.(\d{1,9})\.")
_EMBEDDINGS = ("model.embed_tokens.weight", "embed_tokens.weight", "transformer.wte.weight", "wte.weight")
_ROUTERS = ("layers.0.block_sparse_moe.gate.weight", "layers.0.mlp.gate.weight")


def require_sizes(config: Settings, model: HfModel, shapes: Shapes) -> None:
    """Raise ValueError if a size in config.json disagrees with the tensors.

    Only the sizes are checked that determine the number of tensors and their widths.
    """
    kind = kind_of(config)
    numbers = [int(match[1]) for match in map(_LAYER.match, shapes) if match]
    if not numbers:
        raise ValueError(
            f"[hf] weights: expected names that start like 'model.layers.0.', got '{next(iter(shapes), 'none')}'; "
            "the files are of another kind of model than config.json"
        )
    sizes = [(kind.name_of("n_layer"), model.n_layer, 1 + max(numbers))]
    for name in _EMBEDDINGS:
        if len(shapes.get(name, ())) == 2:
            sizes.append(("vocab_size", model.vocab_size, shapes[name][0]))
            sizes.append((kind.name_of("d_model"), model.d_model, shapes[name][1]))
    if isinstance(model, MixtralConfig):
        names = [f"{prefix}{name}" for prefix in ("model.", "") for name in _ROUTERS]
        router = next((shapes[name] for name in names if name in shapes), None)
        if not router:
            raise ValueError(f"[hf] weights: '{names[0]}' is missing")
        sizes.append(("num_local_experts", model.n_expert, router[0]))
    for name, given, have in sizes:
        if given != have:
            raise ValueError(
                f"[hf] {name}: the weights have {have}, the settings say {given}; copy the folder again"
            )
