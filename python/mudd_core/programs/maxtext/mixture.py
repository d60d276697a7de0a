"""MaxText's mixtures: `FILES,WEIGHT;FILES,WEIGHT` in grain_train_files or dataset_path."""

from __future__ import annotations

from mudd_core.config.fields import Scalar
from mudd_core.config.mix import parse_weights, sources_text


def is_mixture(files: str) -> bool:
    """Return whether the files have weights: MaxText separates the parts of a mixture by semicolons."""
    return ";" in files


def mixture_fields(files: str, eval_files: str, epochs: int) -> dict[str, Scalar]:
    """Return the fields of a mixture, whose sources are files1, files2, ...; raise ValueError if it is malformed.

    eval_files: the validation files of each source; empty = none. epochs: passes before the run ends, 0 = no limit.
    """
    weights, sources = list[str](), dict[str, dict[str, str]]()
    for number, part in enumerate(filter(None, (part.strip() for part in files.split(";"))), 1):
        path, comma, weight = part.rpartition(",")
        if not (comma and path.strip()):
            raise ValueError(f"expected FILES,WEIGHT;FILES,WEIGHT, such as a*,0.7;b*,0.3, got {part!r}")
        options = {"path": path.strip()}
        if eval_files:
            options["eval_path"] = eval_files
        if epochs:
            options["epochs"] = str(epochs)
        sources[f"files{number}"] = options
        weights.append(f"files{number}:{weight.strip()}")
    mix = ",".join(weights)
    parse_weights(mix)
    until = "first" if epochs else "steps"
    return {"data.mix": mix, "data.sources": sources_text(sources), "data.mix_until": until}
