"""Reduce the results of the original programs to the values that the tests compare.

    python tests/goldens/originals/reduce.py FOLDER

FOLDER contains the whole files (weights, logits, gradients, weights after updates), which are not in the repository.
Each case becomes one .npz here: the original's settings, its weights by its own names, its batches, eight rows of
logits, and the loss. Of every gradient, and of every weight after three updates, it has the norm and sixteen entries.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

Array = NDArray[Any]
HERE = Path(__file__).parent
ENTRIES, ROWS = 16, 8
PROGRAMS = {
    "muddformer": "MUDDFormer, the authors' JAX program, commit fc067b2",
    "tokenformer": "TokenFormer, the authors' JAX program",
    "mup": "mu_transformer, commit 8c38b29",
    "hf": "transformers 5.23.0, torch 2.13.0",
}


def spread(size: int, count: int) -> Array:
    """Return `count` evenly spread indices of an array of `size` elements, including the first and the last."""
    return np.unique(np.linspace(0, size - 1, min(size, count)).round().astype(np.int64))


def sampled(prefix: str, tensors: dict[str, Array]) -> dict[str, Array]:
    """Return the norm, the largest entry and sixteen entries of every tensor."""
    found: dict[str, Array] = {}
    for name, x in tensors.items():
        flat = x.astype(np.float64).ravel()
        head = [np.sqrt((flat**2).sum()), np.abs(flat).max()]
        found[f"{prefix}/{name}"] = np.concatenate([head, flat[spread(flat.size, ENTRIES)]]).astype(
            np.float32
        )
    return found


def pick(z: Any, prefix: str) -> dict[str, Array]:
    """Return the arrays whose names have this prefix, without the prefix."""
    return {k.removeprefix(prefix): z[k] for k in z.files if k.startswith(prefix)}


def write(name: str, program: str, settings: Any, arrays: dict[str, Array], logits: Array) -> None:
    """Write one case."""
    about = {"program": PROGRAMS[program], "reduced": time.strftime("%Y-%m-%d"), "settings": settings}
    flat = logits.reshape(-1, logits.shape[-1])
    rows = spread(len(flat), ROWS)
    np.savez_compressed(
        HERE / f"{name}.npz", about=np.array(json.dumps(about)), rows=rows, logits=flat[rows], **arrays
    )


def mup_names(z: Any, prefix: str) -> dict[str, Array]:
    """Return the tensors of mu_transformer by their short names."""
    return {k: x for k, x in pick(z, prefix).items() if k[:2] in ("w_", "b_", "g_")}


def main() -> int:
    """Reduce every case of the folder."""
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    z = np.load(folder / "muddformer/mudd_plain.npz", allow_pickle=False)
    arrays = {f"w/{k}": x for k, x in pick(z, "w/").items()} | sampled("g", pick(z, "g/"))
    arrays |= {"tokens": z["tokens"], "loss": z["loss"]}
    write("muddformer", "muddformer", json.loads(str(z["config"])), arrays, z["logits"])
    for case in ("tokenformer", "gpt2"):
        z = np.load(folder / f"tokenformer/{case}_plain.npz", allow_pickle=False)
        arrays = {f"w/{k}": x for k, x in pick(z, "w/").items()} | sampled("g", pick(z, "g/"))
        arrays |= {f"batch/{k}": x for k, x in pick(z, "batch/").items()} | {"loss": z["loss"]}
        write(f"tokenformer_{case}", "tokenformer", json.loads(str(z["config"])), arrays, z["logits"])
    z = np.load(folder / "mup/base_w32.npz", allow_pickle=False)
    arrays = {f"w/{k}": x for k, x in mup_names(z, "param0.").items()}
    arrays |= sampled("g", mup_names(z, "grad0.")) | sampled("after", mup_names(z, "param3."))
    arrays |= {"batches": z["batches"], "loss": z["loss0"], "schedule": z["schedule"][:3]}
    write("mu_transformer", "mup", json.loads(str(z["config"])), arrays, z["logits0"])
    for case in ("llama_gqa", "mixtral"):
        z = np.load(folder / f"hf/{case}.npz", allow_pickle=False)
        settings = json.loads((folder / "hf" / case / "config.json").read_text())
        arrays = {f"w/{k}": x for k, x in load_file(folder / "hf" / case / "model.safetensors").items()}
        arrays |= sampled("g", pick(z, "grad/")) | sampled("after", pick(z, "after3/"))
        arrays |= {k: z[k] for k in ("tokens", "labels", "loss", "step_losses", "step_grad_norms")}
        arrays |= {"prompt": z["gen_prompt"], "greedy": z["gen_sequences"]}
        write(f"hf_{case}", "hf", settings, arrays, z["logits"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
