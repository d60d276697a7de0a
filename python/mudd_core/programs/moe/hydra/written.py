"""Files that a run of this grammar writes in addition to config.json: the composed config, and Hydra's three files."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence

import yaml

from mudd_core.base.bounded_yaml import FLOAT_TAG, FLOAT_TEXT
from mudd_core.programs.moe.hydra.compose import Composed
from mudd_core.programs.moe.hydra.files import Folders
from mudd_core.programs.moe.hydra.values import Node
from mudd_core.programs.moe.keys import FOLDER


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes strings which OmegaConf would read as numbers."""

    def ignore_aliases(self, data: Node) -> bool:
        """Return true, so that repeated values are written without YAML aliases."""
        return True


_Dumper.yaml_implicit_resolvers = copy.deepcopy(yaml.SafeDumper.yaml_implicit_resolvers)
_Dumper.add_implicit_resolver(FLOAT_TAG, FLOAT_TEXT, list("-+0123456789."))


def to_yaml(tree: Mapping[str, Node]) -> str:
    """Format the tree as Hydra prints and writes it."""
    return yaml.dump(
        dict(tree), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False
    )


def hydra_files(
    composed: Composed, tree: Mapping[str, Node], words: Sequence[str], folders: Folders
) -> dict[str, str]:
    """Return file contents by path: the run's config.yaml, and Hydra's unresolved config, overrides and settings."""
    job = {key: value for key, value in composed.tree.items() if key != "hydra"}
    whole = {key: value for key, value in tree.items() if key != "hydra"}
    run = str(tree.get(FOLDER) or "")
    node = tree.get("hydra")
    place = node.get("run") if isinstance(node, dict) else None
    output = str(place.get("dir") or run) if isinstance(place, dict) else run
    settings: dict[str, Node] = {
        "run": {"dir": output},
        "job": {"name": "clm", "config_name": composed.name},
        "overrides": {"hydra": [], "task": list(words)},
        "runtime": {
            "choices": dict(composed.choices),
            "config_sources": [str(folder) for folder in folders.places],
            "output_dir": output,
        },
        "output_subdir": ".hydra",
    }
    return {
        f"{run}/config.yaml": to_yaml(whole),
        f"{output}/.hydra/config.yaml": to_yaml(job),
        f"{output}/.hydra/overrides.yaml": yaml.dump(list(words), Dumper=_Dumper, allow_unicode=True),
        f"{output}/.hydra/hydra.yaml": to_yaml({"hydra": settings}),
    }
