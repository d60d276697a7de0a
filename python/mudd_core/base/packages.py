"""Packages that only some inputs need: imported where they are used, refused in words where they are missing."""

from __future__ import annotations

import importlib
from typing import Any

from mudd_core.base.errors import UserError

# The extra of pyproject.toml that brings each of them.
EXTRAS = {
    "pyarrow": "seeds",
    "array_record": "seeds",
    "zstandard": "seeds",
    "sentencepiece": "seeds",
    "ml_collections": "seeds",
    "datasets": "hub",
    "gcsfs": "cloud",
    "s3fs": "cloud",
    "wandb": "wandb",
}


def needed(module: str, argument: str, purpose: str) -> Any:
    """The module, imported. UserError with the pip command where it is not installed.

    argument: [place] name of the field that asks for it. purpose: what it does, as in `to read Parquet files`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        extra = EXTRAS.get(package)
        command = f"pip install 'mudd-core[{extra}]'" if extra else f"pip install {package}"
        if error.name is not None and error.name.partition(".")[0] != package:
            raise UserError(
                f"{argument}: expected the package {package} {purpose}, got one that cannot be imported ({error}); "
                f"install it again: {command}"
            ) from None
        raise UserError(
            f"{argument}: expected the package {package} {purpose}, got none; install it: {command}"
        ) from None
