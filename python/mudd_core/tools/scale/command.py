"""Predict training on several machines from a measured step of one machine, and rank the meshes (docs/scale.md).

    python3 launch.py scale --config=muddformer/1_4b.py --nodes 64 --flops 4e12 --memory 128
    python3 launch.py scale --config=small.py --nodes 16 --net runs/bench --workdir runs/small

The speed of a node comes from the run of one node in --workdir, or from --step-seconds or --flops.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.paths import local
from mudd_core.config import Config, load_config
from mudd_core.config.mesh import MOST_RANKS
from mudd_core.config.tool_arguments import ToolArguments, positive_number, whole_number
from mudd_core.engine.memory import GIB
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.run.store.saved_run import config_of_run, run_and_step
from mudd_core.tools.scale.networks import ASSUMED, network_of


def main(words: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    asked, overrides = (parser := _parser()).read(words)
    if asked.axes:
        from mudd_core.tools.scale.page import axis_tables

        print(axis_tables())
        return 0
    if asked.tables:
        from mudd_core.tools.scale.page import tables

        print(tables())
        return 0
    if not (asked.config or asked.workdir):
        parser.require("--config")
    if asked.nodes * asked.ranks_per_node > MOST_RANKS:
        raise UserError(
            f"[scale] --nodes: expected at most {MOST_RANKS} ranks in all, "
            f"got {asked.nodes} x {asked.ranks_per_node}"
        )
    network = network_of(asked.net)
    if asked.config:
        config = load_config(asked.config, overrides)
    else:
        config = config_of_run(asked.workdir, overrides, trusted=asked.trust_code)
    from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
    from mudd_core.run.build.plan_memory import usual_program_bytes
    from mudd_core.tools.scale.models import training_of
    from mudd_core.tools.scale.report import Cluster, report

    shape = resolved_model(config, expected_vocabulary(config))
    training = training_of(config, shape)
    seconds_of_token, source = _measured(asked, config, training.flops)
    cluster = Cluster(
        asked.nodes,
        asked.ranks_per_node,
        training.flops / seconds_of_token,
        source,
        usual_program_bytes(asked.ranks_per_node),
        int(GIB * (asked.memory or 0)),
        asked.config or run_and_step(asked.workdir)[0],
        tuple(overrides),
    )
    print(report(config, shape, training, network, cluster))
    return 0


def _measured(asked: argparse.Namespace, config: Config, flops: float) -> tuple[float, str]:
    """Return the seconds per token on one node, and the source of this number."""
    given = [name for name in ("flops", "step_seconds", "workdir") if getattr(asked, name)]
    if len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise UserError(
            f"[scale] {names}: expected only one of these options, because each sets the speed of a node"
        )
    if asked.flops:
        return flops / asked.flops, "given by --flops"
    if asked.step_seconds:
        tokens = config.train.batch_size * config.train.seq_len
        return asked.step_seconds / tokens, "given by --step-seconds, for the batch of the config"
    named, _ = run_and_step(asked.workdir or str(Path("runs") / config.name))
    run = RunFolder(local(named, "[scale] --workdir"))
    from mudd_core.run.store.metrics import rows_of

    rates = [row.get("tokens_per_second") for row in rows_of(run)]
    known = [float(rate) for rate in rates if isinstance(rate, int | float) and rate > 0]
    if not known:
        raise UserError(
            f"[scale] --workdir: expected a run with a measured speed in its metrics, got {run}; "
            "train a few steps of this config on one node, or type --step-seconds=S or --flops=F"
        )
    return 1 / statistics.median(
        known
    ), f"the median of {len(known)} rows of {run.metrics_file}, a run of one node"


def _parser() -> ToolArguments:
    parser = ToolArguments("scale", __doc__ or "", fields="train.batch_size=1024", run="--workdir")
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="config file, as for training; default: the config of the run in --workdir",
    )
    parser.add_argument(
        "--nodes",
        type=whole_number(1, MOST_RANKS),
        default=1,
        metavar="N",
        help="number of machines (default 1)",
    )
    parser.add_argument(
        "--net",
        default="25g",
        metavar="NET",
        help=f"network: {', '.join(ASSUMED)} (assumed speeds; default 25g), or a file of commbench",
    )
    parser.add_argument(
        "--ranks-per-node",
        type=whole_number(1, MOST_RANKS),
        default=1,
        metavar="M",
        help="ranks per node (default 1)",
    )
    parser.add_argument(
        "--workdir", metavar="DIR", help="work directory of a measured run; default runs/<config name>"
    )
    parser.add_argument(
        "--step-seconds",
        type=positive_number,
        metavar="S",
        help="instead of --workdir: seconds that one node needs for a step of the config's batch",
    )
    parser.add_argument(
        "--flops",
        type=positive_number,
        metavar="F",
        help="instead of --workdir: FLOP/s of a node in training, which --plan prints",
    )
    parser.add_argument(
        "--memory",
        type=positive_number,
        metavar="GIB",
        help="memory of a node in GiB; default: no limit",
    )
    parser.add_argument(
        "--axes", action="store_true", help="print the mesh axes that each family supports and rejects"
    )
    parser.add_argument("--tables", action="store_true", help="print the tables of docs/scale.md")
    return parser
