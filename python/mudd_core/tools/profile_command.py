"""Measure where the time of a training step goes.

    python3 launch.py profile --config=small.py
    python3 launch.py profile --config=small.py --by=part --trace=step.json.gz train.batch_size=4

Steps run on random tokens with freshly initialized weights; nothing is trained and no dataset is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudd_core.base.paths import local
from mudd_core.base.show.waiting import waiting
from mudd_core.config.tool_arguments import ToolArguments, whole_number
from mudd_core.tools.named_config import add_config_or_run, named_config


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, overrides = (parser := _parser()).read(words)
    trace = local(asked.trace, "[profile] --trace") if asked.trace else None
    config = named_config(parser, asked, overrides)
    from mudd_core import _core
    from mudd_core.base.surroundings import environment_text
    from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
    from mudd_core.run.build.memory_plan import MemoryPlan
    from mudd_core.run.build.planned_model import plan_model
    from mudd_core.run.ranks.ranks import Ranks
    from mudd_core.tools import profile

    _core.set_num_threads(Ranks().threads(config.train.threads))  # as a run
    shape = resolved_model(config, expected_vocabulary(config))
    MemoryPlan.of(shape, config).require("profiling")
    model, engine, _ = plan_model(shape, config)
    with waiting(f"profiling {asked.warmup} + {asked.steps} steps of {config.name}"):
        model.store.initialize(config.train.seed)
        before = profile.measured_limits(config.train.precision)
        found = profile.profile(engine, steps=asked.steps, warmup=asked.warmup)
        limits = before.best_of(profile.measured_limits(config.train.precision), found)
    print(
        f"{config.name}: {environment_text(config.train.precision)}; "
        f"peak {limits.flops / 1e9:,.0f} GFLOP/s, memory {limits.bytes / 1e9:,.1f} GB/s"
    )
    print(profile.table(found, limits, profile.by_part if asked.by == "part" else profile.by_op))
    if trace is not None:
        profile.write_trace(found, limits, trace)
        print(f"wrote {asked.trace}; open it in Perfetto or chrome://tracing")
    return 0


def _parser() -> ToolArguments:
    parser = ToolArguments("profile", __doc__ or "", fields="train.batch_size=4", run="--workdir")
    add_config_or_run(parser)
    parser.add_argument(
        "--steps", type=whole_number(1), default=5, metavar="N", help="timed steps (default 5)"
    )
    parser.add_argument(
        "--warmup", type=whole_number(1), default=2, metavar="N", help="untimed steps before them (default 2)"
    )
    parser.add_argument(
        "--by", choices=("op", "part"), default="op", help="group times by op, or by part of the model"
    )
    parser.add_argument(
        "--trace", default="", metavar="FILE", help="also write a trace of the last step to FILE (.json.gz)"
    )
    return parser
