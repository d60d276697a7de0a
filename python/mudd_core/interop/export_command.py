"""Writes a run's weights as a folder of an original program: settings, safetensors, tokenizer.

What was written is loaded again and must give the very logits of the run before success is reported.
"""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mudd_core.base.errors import FormatError, SaveError, UserError
from mudd_core.base.paths import local
from mudd_core.base.regular_files import read_bytes
from mudd_core.config import Config
from mudd_core.config.tool_arguments import ToolArguments
from mudd_core.run.saved_run import named_run

Array = npt.NDArray[Any]
_PROBE = (2, 32)  # windows and positions that are compared


def main(words: Sequence[str]) -> int:
    """Run the command; 1 if the folder does not give the run's logits (it is removed then)."""
    args, rest = _parser().read(words)
    folder = local(args.to, "[export] --to")
    if folder.exists():
        raise UserError(f"[export] {folder} exists already; give another --to")
    from mudd_core import interop

    options = {f"--{name}": getattr(args, name) for name in ("config", "workdir") if getattr(args, name)}
    config, workdir = named_run(options, rest)
    model = _load(config, workdir, args.step)
    try:
        settings, weights = interop.export_original(args.system, model)
    except ValueError as error:  # a family or a field that the other program does not have
        raise UserError(f"[export] {error}") from error
    tokenizer = _tokenizer_file(config, workdir)
    write_folder(folder, settings, weights, shard_bytes=args.shard_mb << 20, tokenizer=tokenizer)
    difference, largest = compare(args.system, folder, model)
    if difference != 0.0:
        shutil.rmtree(folder)
        print(
            f"error: [export] logits of {folder} differ by {difference:.3e}; it was removed", file=sys.stderr
        )
        return 1
    print(
        f"{len(weights)} tensors in {folder}; loaded again, its logits are the run's (largest {largest:.4g})"
    )
    return 0


def _parser() -> ToolArguments:
    from mudd_core.interop import SYSTEMS

    p = ToolArguments("export", __doc__ or "", fields="data.cache_dir=DIR")
    p.add_argument("--workdir", metavar="DIR", help="the run: its newest checkpoint is exported")
    p.add_argument("--config", metavar="FILE", help="instead: config of a run in its default folder")
    p.add_argument("--to", required=True, metavar="FOLDER", help="the new folder")
    p.add_argument(
        "--system", choices=SYSTEMS, default="hf", metavar="NAME",
        help=f"for whom: {', '.join(SYSTEMS)}; default hf, Hugging Face",
    )  # fmt: skip
    p.add_argument("--step", type=int, metavar="N", help="this checkpoint instead of the newest")
    p.add_argument("--shard-mb", type=int, default=4096, metavar="N", help="largest file, MiB; default 4096")
    return p


def _load(config: Config, workdir: Path, step: int | None) -> Any:
    """The model of a run's checkpoint."""
    from mudd_core import checkpoint
    from mudd_core.engine.model import Model
    from mudd_core.run.components import resolved_model
    from mudd_core.run.files import read_facts
    from mudd_core.run.saved_state import take_weights

    facts = read_facts(workdir)
    weights_only: dict[str, Any] = {"run_id": facts["run_id"], "only": lambda name: "/" not in name}
    if step is None:
        found = checkpoint.load_newest(workdir / "checkpoints", **weights_only)
    else:
        found = checkpoint.load_step(workdir / "checkpoints", step, **weights_only)
    if found is None:
        raise UserError(f"[export] {workdir} has no checkpoint yet")
    vocab_size = facts.get("vocab_size") or config.model.vocab_size
    if vocab_size < 1:
        raise FormatError(str(workdir / "run.json"), 0, "member 'vocab_size': expected 1 or more, got none")
    model = Model(resolved_model(config, vocab_size), initialize=False)
    take_weights(model, found)
    return model


def _tokenizer_file(config: Any, workdir: Path) -> Path | None:
    """The tokenizer.json of a run: the one its config names, or the one in its token cache; None for bytes."""
    from mudd_core.run.files import read_facts
    from mudd_core.run.records import DATA_FACT

    fingerprint = read_facts(workdir).get(DATA_FACT) or ""
    places = [Path(config.data.tokenizer)] if config.data.tokenizer.endswith(".json") else []
    places += [Path(config.data.cache_dir or "runs/cache") / fingerprint / "tokenizer.json"]
    return next((place for place in places if place.is_file()), None)


def write_folder(
    folder: Path,
    settings: Mapping[str, Any],
    weights: Mapping[str, Array],
    *,
    shard_bytes: int,
    tokenizer: Path | None = None,
) -> None:
    """config.json, the tokenizer, and model.safetensors or numbered files of at most shard_bytes and their index.

    The folder appears whole or not at all: SaveError where the disk is full or refuses.
    """
    from mudd_core import _core
    from mudd_core.checkpoint.steps import new_id

    files = _files(weights, shard_bytes)
    try:
        _core.make_folders(str(folder.parent))
        name = new_id()
        writer = _core.AtomicFolder(str(folder.parent), folder.name, name)
        try:
            for file, members in files.items():
                writer.add_shard(file, members, [("format", "pt")])
            work = folder.parent / f"{folder.name}.tmp-{name}"
            if len(files) > 1:
                where = {member[0]: file for file, members in files.items() for member in members}
                total = sum(array.nbytes for array in weights.values())
                index = {"metadata": {"total_size": total}, "weight_map": where}
                text = json.dumps(index, indent=2) + "\n"
                _core.replace_file(str(work / "model.safetensors.index.json"), text.encode())
            if tokenizer is not None:
                _core.replace_file(str(work / "tokenizer.json"), read_bytes(tokenizer))
            writer.commit("config.json", json.dumps(dict(settings), indent=2) + "\n")
        finally:
            del writer  # what is not committed goes now, not when the traceback does
    except OSError as error:
        raise SaveError(f"[export] {folder} could not be written: {error}") from error


def _files(
    weights: Mapping[str, Array], shard_bytes: int
) -> dict[str, list[tuple[str, str, tuple[int, ...], Array]]]:
    """File name to its (name, dtype, shape, array), in the order given."""
    from mudd_core.checkpoint import dtypes

    files: list[list[tuple[str, str, tuple[int, ...], Array]]] = [[]]
    size = 0
    for name, array in weights.items():
        if files[-1] and size + array.nbytes > shard_bytes:
            files.append([])
            size = 0
        files[-1].append((name, dtypes.name_of(array.dtype) or "", array.shape, np.ascontiguousarray(array)))
        size += array.nbytes
    if len(files) == 1:
        return {"model.safetensors": files[0]}
    return {f"model-{i + 1:05}-of-{len(files):05}.safetensors": file for i, file in enumerate(files)}


def compare(system: str, folder: Path, model: Any) -> tuple[float, float]:
    """(largest difference of a logit between a folder and the model, largest logit) on made-up ids."""
    from mudd_core import interop

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = interop.load_original(system, folder, folder)
    shape = (_PROBE[0], min(_PROBE[1], model.config.max_seq_len))
    ids = np.random.default_rng(0).integers(0, model.config.vocab_size, shape)
    want = model.logits(ids)
    return float(np.abs(again.logits(ids) - want).max()), float(np.abs(want).max())
