"""What a run of this grammar writes beside its config.json: the composed config, and Hydra's own three files."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import yaml

from mudd_core.grammars.hydra.files import FLOAT_TAG, FLOAT_TEXT
from mudd_core.grammars.hydra.values import Node


class _Dumper(yaml.SafeDumper):
    """Quotes strings that OmegaConf would read as numbers."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out."""
        return True


_Dumper.yaml_implicit_resolvers = copy.deepcopy(yaml.SafeDumper.yaml_implicit_resolvers)
_Dumper.add_implicit_resolver(FLOAT_TAG, FLOAT_TEXT, list("-+0123456789."))


def to_yaml(tree: Mapping[str, Node]) -> str:
    """The tree as Hydra prints and writes it."""
    return yaml.dump(
        dict(tree), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False
    )
