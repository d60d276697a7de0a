"""The arguments of `export`."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import folder_to_create, local
from mudd_core.base.regular_files import read_bytes
from mudd_core.checkpoint.gguf_file import STORED
from mudd_core.config import Config, apply_overrides, split_words
from mudd_core.config.arguments import argument
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.engine.model_folder import is_model_folder
from mudd_core.interop import systems
from mudd_core.run.store.best_step import BEST
from mudd_core.run.store.own_code import check_saved
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import named_run, run_and_step
from mudd_core.tools.export_weights.folder import OWN
from mudd_core.tools.export_weights.gguf_place import GgufPlace, is_exported_file, names_file
from mudd_core.tools.export_weights.model_card import NAME as CARD
from mudd_core.tools.export_weights.model_card import WRITTEN

_SHARD_MB = 4096  # the default of --shard-mb
_TEXT = """Write a run's weights as a model folder of Hugging Face or of an original program.

The folder has settings, safetensors and a tokenizer. It is loaded again, and success is reported only if its logits
equal the run's. With --ranks=N [--hosts=A,B] mesh.zero=3 the model is sharded across the ranks, so that no process
needs memory for all of it.
"""


@dataclass(frozen=True)
class Asked:
    """The parsed arguments. changes: overrides of the run's model fields."""

    words: Sequence[str]
    args: argparse.Namespace
    folder: Path
    changes: list[str]
    rest: list[str]

    @classmethod
    def of(cls, words: Sequence[str], job: Sequence[str] = ()) -> Asked:
        """Parse the arguments; raise UserError for a folder to keep. job: as in ToolArguments.read."""
        _require_own_names(words)
        args, rest = (parser := _parser()).read(words, job)
        if not (args.config or args.workdir):
            parser.require("RUN")
        if names_file(args.to):
            if not args.gguf:
                raise UserError(
                    f"[export] --to: expected --gguf with the file {args.to}, got none; add --gguf, or / for a folder "
                    "of this name"
                )
            folder = local(args.to, "[export] --to")
            _require_file(folder, force=args.force)
        else:
            folder = folder_to_create(args.to, "[export] --to")
            require_place(folder, force=args.force)
        if args.workdir:
            args.workdir, step = run_and_step(args.workdir)
            args.step = step if args.step is None else args.step
        changes = [word for word in rest if argument(word).name.startswith("model.")]
        return cls(words, args, folder, changes, [word for word in rest if word not in changes])

    def run(self) -> tuple[Config, RunFolder]:
        """Return (config with the changes, run)."""
        names = ("config", "workdir", "trust_code")
        given = {f"--{name.replace('_', '-')}": getattr(self.args, name) for name in names}
        options = {name: value for name, value in given.items() if value}
        config, run = named_run(options, self.rest)
        config = apply_overrides(config, split_words(self.changes, config))
        check_saved(config)
        self._require_adapters(config)
        return config, run

    def _require_adapters(self, config: Config) -> None:
        """Raise UserError for a form of adapters that the run or the other program does not support."""
        args = self.args
        form = "--adapter" if args.adapter else "--merged" if args.merged else ""
        if form and config.tune.method != "lora":
            raise UserError(
                f"[export] {form}: expected a run that trained adapters, got a run that trained "
                f"whole weights (tune.method={config.tune.method}); leave {form} out"
            )
        if args.adapter and args.system not in (None, "hf"):
            raise UserError(
                "[export] --adapter: PEFT only reads models of transformers; leave "
                f"--system={args.system} out"
            )
        if args.base and not args.adapter:
            raise UserError("[export] --base: expected --adapter with it, got none; leave --base out")
        if args.type and not args.gguf:
            raise UserError(
                f"[export] --type: expected --gguf with it, got none; leave --type={args.type} out"
            )
        if args.gguf and args.system not in (None, "hf"):
            raise UserError(
                f"[export] --gguf: llama.cpp only has models of transformers; leave --system={args.system} out"
            )
        if args.gguf and args.shard_mb != _SHARD_MB:
            raise UserError(
                f"[export] --shard-mb: expected one file with --gguf; leave --shard-mb={args.shard_mb} out"
            )


def _require_own_names(words: Sequence[str]) -> None:
    """Raise UserError for a program or a form after --form or --format, with the option that has this value."""
    options = {name: f"--system={name}" for name in (*systems(), OWN)}
    options |= {name: f"--{name}" for name in ("adapter", "merged", "gguf")}
    for item, after in zip(map(argument, words), [*words[1:], ""], strict=False):
        value = after if item.value is None else item.value
        if item.option in ("--form", "--format") and value in options:
            raise UserError(f"[export] {item.option}: expected {options[value]}, got {item.option}={value}")


def _require_file(file: Path, *, force: bool) -> None:
    """Raise UserError for a file, its Modelfile or its statement, unless it is an export and `force` is true."""
    place = GgufPlace(file, True)
    for one in (file, place.modelfile, place.statement):
        if one.exists() and not is_exported_file(one):
            raise UserError(f"[export] --to: expected a new file or an export, got {one}; give another --to")
        if one.exists() and not force:
            raise UserError(
                f"[export] --to: expected a new file, got the export {one}; add --force to replace it, or give "
                "another --to"
            )


def require_place(folder: Path, *, force: bool) -> None:
    """Raise UserError for a folder that exists, unless it is an export and `force` is true."""
    if not folder.exists():
        return
    if not is_export(folder):
        raise UserError(f"[export] --to: expected a new folder or an export, got {folder}; give another --to")
    if not force:
        raise UserError(
            f"[export] --to: expected a new folder, got the export {folder}; add --force to replace it, or give "
            "another --to"
        )


def is_export(folder: Path) -> bool:
    """Return True for a folder that `export` or model.save() wrote."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    with contextlib.suppress(OSError):
        card = read_bytes(folder / CARD) if (folder / CARD).is_file() else b""
        return WRITTEN.encode() in card or is_model_folder(folder)
    return False


def _parser() -> ToolArguments:
    p = ToolArguments("export", _TEXT, fields="data.cache_dir=DIR", run="--workdir")
    p.add_argument(
        "--workdir", metavar="DIR", help="work directory of the run; its newest checkpoint is exported"
    )
    p.add_argument(
        "--config", metavar="FILE", help="config of a run in its default folder, instead of --workdir"
    )
    p.add_argument("--to", required=True, metavar="FOLDER", help="folder to create")
    p.add_argument("--force", action="store_true", help="replace the folder if an earlier export wrote it")
    form = p.add_mutually_exclusive_group()
    form.add_argument(
        "--adapter", action="store_true", help="write only the adapters of the run, in PEFT's format"
    )
    form.add_argument(
        "--merged",
        action="store_true",
        help="add the adapters to the base and write the whole model (the default)",
    )
    p.add_argument(
        "--gguf",
        action="store_true",
        help="write a GGUF file for llama.cpp and a Modelfile for Ollama; --to is a folder or FILE.gguf",
    )
    p.add_argument(
        "--type",
        choices=(*STORED,),
        metavar="NAME",
        help=f"with --gguf: type of the matrices, {', '.join(STORED)}; default f16",
    )
    p.add_argument(
        "--base",
        metavar="NAME",
        help="name of the base model in the config of --adapter; default: the folder that was fine-tuned",
    )
    whom = f"format: {', '.join(systems())}; {OWN}: mudd_core's names, for mc.load; default hf, or the family's program"
    p.add_argument("--system", choices=(*systems(), OWN), metavar="NAME", help=whom)
    p.add_argument(
        "--step",
        type=_step,
        metavar="N",
        help="checkpoint of step N instead of the newest; best: the lowest validation loss",
    )
    p.add_argument(
        "--average",
        action="store_true",
        help="export the averaged weights of train.average instead of the last ones",
    )
    p.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="tokenizer to write with the weights; default: the run's tokenizer",
    )
    p.add_argument(
        "--shard-mb",
        type=whole_number(0, 2**40),
        default=_SHARD_MB,
        metavar="N",
        help=f"largest file in MiB; 0 = one file per tensor; default {_SHARD_MB}",
    )
    return p


def _step(text: str) -> int | str:
    """Parse the value of --step: a number, or best."""
    return text if text == BEST else whole_number(0)(text)
