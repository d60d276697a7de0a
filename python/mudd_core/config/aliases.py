"""Names of other programs: of a config -> ours below configs/; of a setting -> the field or option to type."""

from __future__ import annotations

ALIASES = {
    "openai-community/gpt2": "gpt2/gpt2",
    "gpt2": "gpt2/gpt2",
    "distilbert/distilgpt2": "gpt2/distilgpt2",
    "distilgpt2": "gpt2/distilgpt2",
    **{
        f"{owner}gpt2-{size}": f"gpt2/gpt2_{size}"
        for size in ("medium", "large", "xl")
        for owner in ("", "openai-community/")
    },
    "mixtral80.json": "mixtral/mixtral80",
    "mixtral87.json": "mixtral/mixtral87",
    "mixtral822.json": "mixtral/mixtral822",
    "mixtral822-instruct.json": "mixtral/mixtral822_instruct",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral/mixtral87",
    "mistralai/Mixtral-8x22B-v0.1": "mixtral/mixtral822",
    "mistralai/Mixtral-8x22B-Instruct-v0.1": "mixtral/mixtral822_instruct",
    "LlamaMedium": "muddformer/llama_medium",
    "Llama2Medium": "muddformer/llama2_medium",
    "MUDDLlama2Medium": "muddformer/mudd_llama2_medium",
    "Llama7B": "muddformer/llama_7b",
    "MUDDFormer-2.8B": "muddformer/2_8b",
    "Caiyun-AI/MUDDFormer-2.8B": "muddformer/2_8b",
    "MUDDPythia-1.4B": "muddformer/muddpythia_1_4b",
    "Caiyun-AI/MUDDPythia-1.4B": "muddformer/muddpythia_1_4b",
    "MUDDPythia-2.8B": "muddformer/muddpythia_2_8b",
    "Caiyun-AI/MUDDPythia-2.8B": "muddformer/muddpythia_2_8b",
    # TokenFormer: published models, and the yml files of the NeoX program; programs/maxtext reads the JAX files.
    **{
        f"{folder}{theirs}_train_pile.yml": f"tokenformer/{ours}"
        for folder in ("", "configs/tokenformer/")
        for theirs, ours in (("150M", "150m"), ("450M", "450m"), ("900M", "900m"), ("1-5B", "1_5b"))
    },
    **{
        f"Haiyang-W/TokenFormer-{theirs}": f"tokenformer/{ours}"
        for theirs, ours in (("150M", "150m"), ("450M", "450m"), ("900M", "900m"), ("1-5B", "1_5b"))
    },
}
_MUP = ("base", "small", "medium", "large", "huge", *(f"dm{128 << i}" for i in range(7)))
ALIASES |= {f"mu_transformer/configs/{name}.py": f"mup/{name}" for name in _MUP}
ALIASES["mu_transformer/configs/tiny.py"] = "mup/small"  # renamed there; mup/tiny is a config of our own
