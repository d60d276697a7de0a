"""Writes a run's weights as a folder of an original program: settings, safetensors, tokenizer.

What was written is loaded again and must give the very logits of the run before success is reported. With --ranks=N
[--hosts=A,B] mesh.zero=3 the ranks hold the model between them, and no process has all of it.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.checkpoint import final_hash
from mudd_core.checkpoint.manifest import Manifest
from mudd_core.checkpoint.manifest_reader import read_manifest
from mudd_core.checkpoint.stored import StoredTensor, stored_tensors
from mudd_core.checkpoint.weights_folder import Later
from mudd_core.config import Config, apply_overrides, check_config, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.data.tokenize import Tokenizer
from mudd_core.engine.frozen import weight_view
from mudd_core.engine.lora import merged_tensors
from mudd_core.engine.model_folder import write_weights
from mudd_core.engine.state import weight_parts
from mudd_core.interop.export_folder import OWN, compare, merged_model, systems_of, write_theirs
from mudd_core.run.build.base import tensors_with_base
from mudd_core.run.ranks.hang_watch import watched
from mudd_core.run.ranks.rank_levels import hold_machine
from mudd_core.run.ranks.ranks import Ranks
from mudd_core.run.store.best_step import BEST, step_asked
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import named_run, run_and_step

if TYPE_CHECKING:
    from mudd_core.engine.model import Model


def main(words: Sequence[str]) -> int:
    """Run the command; 1 if the folder does not give the run's logits (it is removed then)."""
    return by_ranks(words, Ranks())


@dataclass(frozen=True)
class _Asked:
    """What the arguments ask for. changes: fields of the model that are set otherwise than the run has them."""

    args: argparse.Namespace
    folder: Path
    changes: list[str]
    rest: list[str]

    @classmethod
    def of(cls, words: Sequence[str]) -> _Asked:
        """Read the arguments; UserError for a folder that exists."""
        args, rest = (parser := _parser()).read(words)
        if not (args.config or args.workdir):
            parser.require("RUN")
        folder = local(args.to, "[export] --to")
        if folder.exists():
            raise UserError(f"[export] {folder} exists already; give another --to")
        if args.workdir:
            args.workdir, step = run_and_step(args.workdir)
            args.step = step if args.step is None else args.step
        changes = [word for word in rest if argument(word).name.startswith("model.")]
        return cls(args, folder, changes, [word for word in rest if word not in changes])

    def run(self) -> tuple[Config, RunFolder]:
        """The run, its config with the changes."""
        names = ("config", "workdir")
        options = {f"--{name}": getattr(self.args, name) for name in names if getattr(self.args, name)}
        config, run = named_run(options, self.rest)
        config = apply_overrides(config, split_words(self.changes, config))
        check_config(config)
        return config, run

    def systems(self, config: Config) -> tuple[str, ...]:
        """The programs to export for, the likeliest first."""
        return (self.args.system,) if self.args.system else systems_of(config)


def by_ranks(words: Sequence[str], ranks: Ranks) -> int:
    """As main, on each rank of a job: they hold the model between them, and rank 0 writes a tensor at a time."""
    from mudd_core.run.build.saved_model import model_of_run

    asked = ranks.together(lambda: _Asked.of(words))
    config, run = ranks.in_turn(asked.run)
    ranks.together(lambda: config.mesh.require_readers(ranks.world))
    hold_machine(ranks, config)
    step = ranks.together(lambda: step_asked(asked.args.step, run, "[export] --step"))
    precision = config.train.precision if asked.systems(config) == (OWN,) else "fp32"
    model, found = model_of_run(config, run, step, precision=precision, ranks=ranks)
    cut = None if model.store.holds_all else stored_tensors(*_step_of(run, found))
    if cut is not None and model.lora is not None:  # its checkpoint has adapters alone
        cut = tensors_with_base(config, model, run, cut)
    with watched(ranks, config, model.n_parameters) as watch:
        return _exported(asked, config, run, model, cut, ranks, lambda: watch.phase("save", found))


def _exported(
    asked: _Asked,
    config: Config,
    run: RunFolder,
    model: Model,
    cut: Mapping[str, StoredTensor] | None,
    ranks: Ranks,
    lives: Callable[[], None],
) -> int:
    """Write the folder and load it again; the exit code. cut: as for write_theirs. lives: called for each tensor."""
    systems = asked.systems(config)
    if systems == (OWN,):
        digest = final_hash(weight_parts(model.store, model.store.names()), model.comm)
        said = ranks.from_first(lambda: _write_own(asked, config, run, model, cut, digest, lives))
        return _say(ranks, said)
    if model.lora is not None:
        merged = merged_tensors(model.parameters if cut is None else cut, model.store)
        model, cut = merged_model(model, merged, config, ranks), None if cut is None else merged

    def write() -> tuple[str, int]:
        args = asked.args
        tokenizer = _tokenizer(args.tokenizer, config, run, model.config.vocab_size)
        kept, size = args.tokenizer is None, args.shard_mb << 20
        return write_theirs(
            asked.folder, run, model, systems, cut, tokenizer, kept=kept, shard_bytes=size, lives=lives
        )

    system, tensors = ranks.from_first(write)
    difference, largest = compare(system, asked.folder, model, config, ranks)
    if difference != 0.0:
        if ranks.first:
            shutil.rmtree(asked.folder)
            print(
                f"error: [export] logits of {asked.folder} differ by {difference:.3e}; it was removed",
                file=sys.stderr,
            )
        return 1
    program = "" if asked.args.system or system == "hf" else f" for {system}"
    return _say(
        ranks,
        f"{tensors} tensors in {asked.folder}{program}; loaded again, its logits are the run's"
        f"{' with ' + shlex.join(asked.changes) if asked.changes else ''} (largest {largest:.4g})",
    )


def _say(ranks: Ranks, text: str) -> int:
    if ranks.first:
        print(text)
    return 0


def _step_of(run: RunFolder, step: int) -> tuple[Path, Manifest]:
    folder = run.step_folder(step)
    return folder, read_manifest(folder)


def _write_own(
    asked: _Asked,
    config: Config,
    run: RunFolder,
    model: Model,
    cut: Mapping[str, StoredTensor] | None,
    digest: str,
    lives: Callable[[], None],
) -> str:
    """Write the weights by our own names; the line for the user. cut, lives: as for write_theirs."""
    tokenizer = _tokenizer(asked.args.tokenizer, config, run, model.config.vocab_size)
    names = model.store.names()
    weights = {
        name: Later.of(weight_view(model.store, name)) if cut is None else Later.stored(cut[name])
        for name in names
    }
    alive = {name: one.after(lives) for name, one in weights.items()}
    write_weights(model, asked.folder.absolute(), tokenizer, alive, digest)
    return f"{len(names)} tensors in {asked.folder}, by the names of the model; mc.load opens it"


def _parser() -> ToolArguments:
    from mudd_core.interop import SYSTEMS

    p = ToolArguments("export", __doc__ or "", fields="data.cache_dir=DIR", run="--workdir")
    p.add_argument("--workdir", metavar="DIR", help="the run: its newest checkpoint is exported")
    p.add_argument("--config", metavar="FILE", help="instead: config of a run in its default folder")
    p.add_argument("--to", required=True, metavar="FOLDER", help="the new folder")
    whom = f"for whom: {', '.join(SYSTEMS)}; {OWN}: by our names, for mc.load; default hf, or the family's program"
    p.add_argument("--system", choices=(*SYSTEMS, OWN), metavar="NAME", help=whom)
    p.add_argument(
        "--step",
        type=_step,
        metavar="N",
        help="this checkpoint instead of the newest; best: of the lowest validation loss",
    )
    p.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer to write with the weights; default the run's own"
    )
    p.add_argument(
        "--shard-mb",
        type=whole_number(0, 2**40),
        default=4096,
        metavar="N",
        help="largest file, MiB; 0: a file for each tensor; default 4096",
    )
    return p


def _step(text: str) -> int | str:
    """The value of --step: a number, or best."""
    return text if text == BEST else whole_number(0)(text)


def _tokenizer(asked: str | None, config: Config, run: RunFolder, vocab_size: int) -> Tokenizer | None:
    """The tokenizer to export; a note where there is none."""
    from mudd_core.run.build.run_tokenizer import asked_tokenizer, own_tokenizer

    if asked is not None:
        return asked_tokenizer(asked, config, vocab_size)
    found = own_tokenizer(config, run)
    if found is None:
        print(
            f"note: no tokenizer is exported: {run} has none (its data are ids, or its token cache is gone); "
            "--tokenizer=PATH adds one",
            file=sys.stderr,
        )
    return found
