"""Configuration: typed frozen dataclasses, the files that return them, overrides, JSON and checks."""

from mudd_core.config.check import check_config, check_fields
from mudd_core.config.config_files import config_folders, find_config
from mudd_core.config.data import DataConfig, HubConfig, StorageConfig
from mudd_core.config.families import (
    FAMILIES,
    FamilyConfig,
    GPT2Config,
    MixtralConfig,
    MixtureConfig,
    ModelConfig,
    MUDDFormerConfig,
    MupConfig,
    TokenFormerConfig,
    TransformerPPConfig,
    head_width,
    kv_heads,
    mixture_of,
)
from mudd_core.config.load import load_config, read_config
from mudd_core.config.log import LogConfig
from mudd_core.config.mesh import DistConfig, MeshConfig
from mudd_core.config.mesh_fit import Mesh, mesh_of, worlds
from mudd_core.config.optim import OptimConfig
from mudd_core.config.overrides import apply_overrides, split_words, typed_names
from mudd_core.config.run_config import Config
from mudd_core.config.saved import (
    Difference,
    OtherConfigError,
    config_hash,
    differences,
    from_dict,
    merge_for_resume,
    to_dict,
    to_json,
    with_bound_values,
)
from mudd_core.config.schema import EvalConfig, LossConfig, SampleConfig, StartConfig, shard_count
from mudd_core.config.train import TrainConfig
from mudd_core.config.tune import LoraConfig, TuneConfig

__all__ = [
    "FAMILIES",
    "Config",
    "DataConfig",
    "Difference",
    "DistConfig",
    "EvalConfig",
    "FamilyConfig",
    "GPT2Config",
    "HubConfig",
    "LogConfig",
    "LoraConfig",
    "LossConfig",
    "MUDDFormerConfig",
    "Mesh",
    "MeshConfig",
    "MixtralConfig",
    "MixtureConfig",
    "ModelConfig",
    "MupConfig",
    "OptimConfig",
    "OtherConfigError",
    "SampleConfig",
    "StartConfig",
    "StorageConfig",
    "TokenFormerConfig",
    "TrainConfig",
    "TransformerPPConfig",
    "TuneConfig",
    "apply_overrides",
    "check_config",
    "check_fields",
    "config_folders",
    "config_hash",
    "differences",
    "find_config",
    "from_dict",
    "head_width",
    "kv_heads",
    "load_config",
    "merge_for_resume",
    "mesh_of",
    "mixture_of",
    "read_config",
    "shard_count",
    "split_words",
    "to_dict",
    "to_json",
    "typed_names",
    "with_bound_values",
    "worlds",
]
