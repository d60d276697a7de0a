"""Grow a trained TokenFormer to more slots. The result is the first checkpoint of a new run."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.base.surroundings import typed_program
from mudd_core.config import Config, TokenFormerConfig, load_config
from mudd_core.config.fields import replace_path
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.run.build import grow
from mudd_core.run.build.start_source import check_start, read_source, start_path
from mudd_core.run.build.start_tokenizer import with_source_tokenizer
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import config_of_run, run_and_step

_PROBE_WINDOWS = 4
PRESERVED = 1e-5  # largest relative change of a logit that is regarded as rounding


def main(words: Sequence[str]) -> int:
    """Run the command; return 1 if --preserve is set and the logits changed."""
    args, rest = (parser := _parser()).read(words)
    config = _asked(parser, args, rest)
    run = RunFolder(local(args.workdir, "[grow] --workdir"))
    if run.checkpoint_folder.exists():
        raise UserError(f"[grow] {args.workdir} already contains checkpoints; type another --workdir")
    config, change, largest = _compare(config, args.preserve)
    share = change / max(largest, 1e-30)
    print(f"largest change of a logit {change:.3e}, {share:.3e} of the largest logit ({largest:.4g})")
    if args.preserve and not share < PRESERVED:
        print(f"error: expected less than {PRESERVED:g} with --preserve; nothing was saved", file=sys.stderr)
        return 1
    from mudd_core.run.loop.trainer import Trainer
    from mudd_core.run.report.progress import Progress

    with Trainer(config, args.workdir, progress=Progress()) as trainer:
        if not trainer.save():
            return 74
    print(f"saved {run.step_folder(0)}; to train it:")
    print(f"  {shlex.join([*typed_program(), f'--config={run.config_file}', f'--workdir={run}'])}")
    return 0


def _parser() -> ToolArguments:
    p = ToolArguments("grow", __doc__ or "", fields="model.slot_num=2140", run="--from")
    p.add_argument(
        "--config", metavar="FILE", help="config of the larger model; default: the config of the trained run"
    )
    p.add_argument(
        "--from",
        required=True,
        dest="source",
        metavar="PATH",
        help="the trained model: a work directory, a step-<n> folder of one, or a safetensors file",
    )
    p.add_argument("--workdir", required=True, metavar="DIR", help="work directory of the new run")
    p.add_argument(
        "--grow-init",
        choices=("random", "zero_keys", "zero_both"),
        help="new slots have random values (default), zero keys, or zero keys and values",
    )
    p.add_argument(
        "--preserve",
        action="store_true",
        help="use zero_keys, and set zoom_dim to the old number of slots, so that the model's outputs do "
        "not change",
    )
    p.add_argument(
        "--slot-number",
        type=whole_number(1),
        metavar="N",
        help="use only the first N slots of the source; default: all",
    )
    p.add_argument(
        "--keep-optimizer",
        action="store_true",
        help="keep the optimizer's moments; moments of new slots are zero",
    )
    p.add_argument("--force", action="store_true", help="allow zero_both, whose new slots can never learn")
    return p


def _asked(parser: ToolArguments, args: argparse.Namespace, rest: list[str]) -> Config:
    """Return the config of the new run from the arguments."""
    local(args.source, "[grow] --from")
    words = [*rest, f"start.load_parameters_path={args.source}"]
    if args.preserve and args.grow_init not in (None, "zero_keys"):
        raise UserError(f"[grow] --preserve: expected --grow-init=zero_keys with it, got {args.grow_init}")
    how = "zero_keys" if args.preserve else args.grow_init
    if how is not None:
        words.append(f"start.grow_init={how}")
    if args.slot_number is not None:
        words.append(f"start.load_parameters_path_slot_number={args.slot_number}")
    words += ["start.keep_optimizer=true"] * args.keep_optimizer + ["start.force=true"] * args.force
    if args.config:
        return load_config(args.config, words)
    if not RunFolder(local(run_and_step(args.source)[0], "[grow] --from")).holds_run:
        parser.require("--config")
    return config_of_run(args.source, words, trusted=args.trust_code)


def _compare(config: Config, preserve: bool) -> tuple[Config, float, float]:
    """Return (config with the values of --preserve, largest change of a logit, largest logit) on held-out text."""
    from mudd_core import _core
    from mudd_core.data.pipelines import prepare
    from mudd_core.engine.model import Model
    from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
    from mudd_core.run.build.memory_plan import MemoryPlan
    from mudd_core.run.build.rows import row_shape

    if not isinstance(config.model, TokenFormerConfig):
        raise UserError(f"[grow] config: expected a TokenFormer, got {config.model.family}")
    check_start(config)
    _core.set_num_threads(config.train.threads)
    probed = with_source_tokenizer(config, None)[0]
    MemoryPlan.of(resolved_model(probed, expected_vocabulary(probed)), probed).require()
    text = prepare(probed)
    new = resolved_model(config, text.vocab_size)
    assert isinstance(new, TokenFormerConfig)
    source = read_source(start_path(config))
    number = config.start.load_parameters_path_slot_number
    old = grow.old_model_config(new, source, number)
    if preserve:
        new = dataclasses.replace(new, zoom_dim=grow.preserving_zoom(old, new))
        config = replace_path(config, "model.zoom_dim", new.zoom_dim)
    after = Model(new, seed=config.train.seed)
    how = config.start.grow_init
    for name, value in grow.start_weights(after, source, slot_number=number, how=how):
        after.set_parameter(name, value)
    tokens = text.rows("valid", row_shape(config)).arrays(0, _PROBE_WINDOWS)["inputs"]
    print(
        f"{old.slots('qkv'):,} to {new.slots('qkv'):,} slots, new ones {how}; compared on {tokens.size:,} tokens"
    )
    change, largest = grow.largest_change(grow.with_weights(old, source.tensors), after, tokens)
    return config, change, largest
