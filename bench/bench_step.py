"""Time optimizer steps of mudd_core on a bench shape, in this process; print a line, or JSON for bench_baselines.py.

    python bench/bench_step.py --family transformer_pp --shape 9M --threads 2 --steps 12

A step is one call of the engine: forward and backward of all micro-batches, clip to norm 1, AdamW and repacking.
Warm-up steps are not timed. Under mpirun the ranks take the steps together, and the first one reports.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rank_memory import memory_of
from shapes import AUX, EXPERTS, FAMILIES, SHAPES, TOP_K, Shape, peak_rss_mib, usable_cores
from turns import Ranks, turns
from workload import (
    BETAS,
    CLIP,
    DECAY,
    EPS,
    LR,
    batch_tokens,
    length,
    parameter_shapes,
    random_weights,
    spread,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
KINDS = ("weights", "first_moment", "second_moment")


def run_config(
    s: Shape, family: str, micro_batch: int, precision: str = "fp32", recompute: bool = False
) -> Any:
    """Return the config of a run on this shape. As in the baselines, embedding and head decay like every matrix."""
    from mudd_core import config as c

    sizes = {"vocab_size": s.V, "max_seq_len": s.T, "d_model": s.D, "n_layer": s.L, "n_head": s.H}
    model: c.ModelConfig
    if family == "tokenformer":
        model = c.TokenFormerConfig(**sizes, slot_num=s.slots, ffn_slot_num=s.inner(family))
    elif family == "mixtral":
        model = c.MixtralConfig(
            **sizes, d_ff=s.F, n_expert=EXPERTS, top_k=TOP_K, aux_coef=AUX, aux_scope="batch"
        )
        micro_batch = 0  # the balance loss needs the whole batch at once
    elif family == "mup":
        sizes.pop("n_head")
        head = s.D // s.H
        model = c.MupConfig(
            **sizes, d_base=s.D, d_head=head, qk_scale=1 / head
        )  # at the base width, all parameters have one learning rate
    elif family == "muddformer":
        model = c.MUDDFormerConfig(**sizes, d_ff=s.inner(family), ffn_realloc=False)
    else:
        kinds = {"transformer_pp": c.TransformerPPConfig, "gpt2": c.GPT2Config}
        model = kinds[family](**sizes, d_ff=s.inner(family))
    optim = c.OptimConfig(
        lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=DECAY, clip=CLIP, decay="no_norm_no_bias"
    )
    train = c.TrainConfig(
        batch_size=s.B, seq_len=s.T, micro_batch_size=micro_batch, precision=precision, recompute=recompute
    )
    return c.Config(name="bench", model=model, optim=optim, train=train)


def default_micro_batch(s: Shape) -> int:
    """Return half of the batch, but at least 1,024 tokens; the result has the same bits.

    Half a batch needs half of the activations and is hardly slower. With fewer than 1,024 tokens, packing the weights
    once per run is noticeable: 2.7 % of a 162M step.
    """
    return max(1, s.B // 2, min(s.B, 1024 // s.T))


def make_engine(
    s: Shape,
    family: str,
    micro_batch: int,
    weights: Path | None,
    precision: str = "fp32",
    recompute: bool = False,
    comm: Any = None,
    experts: int = 1,
    zero: int = 1,
) -> Any:
    """Return a model with the given weights (or the bench's own), and its engine.

    comm: the communicator of the ranks that train it. experts: the number of ranks across which the experts are
    sharded.
    zero: the value of mesh.zero.
    """
    from mudd_core.config import MeshConfig
    from mudd_core.engine.engine import Engine
    from mudd_core.engine.model import Model
    from mudd_core.run.build.planned_model import cut_of

    config = run_config(s, family, micro_batch, precision, recompute)
    config = replace(config, mesh=MeshConfig(zero=zero, expert=experts))
    group = comm.expert_group(experts) if experts > 1 else None
    cut = cut_of(config.model, config, comm)
    model = Model(config.model, initialize=False, precision=precision, comm=comm, experts=group, cut=cut)
    if weights is None:
        values = random_weights(parameter_shapes(s, family))
    else:
        with np.load(weights, allow_pickle=False) as z:
            values = {k: z[k] for k in z.files}
    for name in list(values):
        model.set_parameter(name, values.pop(name))
    return Engine(config, model)


def state_lengths(engine: Any, comm: Any, copies: int) -> dict[str, float]:
    """Return the norms of all weights, first moments and second moments.

    A different clip, decay or moment would change them. copies: the number of copies of the weights.
    """
    parts: dict[str, list[Any]] = {}
    for part in engine.state_parts():
        kind = part.name.split("/")[0] if "/" in part.name else "weights"
        if kind in KINDS and (not part.shared or comm.node_rank == 0):  # counts only one copy of shared parts
            parts.setdefault(kind, []).append(part.array)
    own = {kind: length(parts.get(kind, [])) ** 2 / (copies if kind == "weights" else 1) for kind in KINDS}
    return {kind: math.sqrt(sum(one[kind] for one in gathered(comm, own))) for kind in KINDS}


def gathered(comm: Any, value: Any) -> list[Any]:
    """Return the values of all ranks, in rank order."""
    return [json.loads(one) for one in comm.all_gather(json.dumps(value).encode())]


def measure(s: Shape, family: str, a: argparse.Namespace) -> dict[str, Any]:
    """Train on fixed random tokens and time the steps after the warm-up."""
    import mudd_core as mc
    from mudd_core import dist
    from mudd_core.run.ranks.rank_cores import widen_binding

    comm = dist.launched(node=a.node)
    widen_binding(a.threads)
    mc.set_num_threads(a.threads)
    micro_batch = default_micro_batch(s) if a.micro_batch is None else a.micro_batch
    program = memory_of("self")
    engine = make_engine(
        s,
        family,
        micro_batch,
        a.weights,
        a.precision,
        a.recompute,
        comm if comm.world > 1 else None,
        a.expert,
        a.zero,
    )
    losses, seconds, exposed, processor = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        ranks = Ranks(Path(comm.broadcast(folder.encode()).decode()), comm.rank, comm.world)
        comm.barrier()  # wait until all weights are set
        for step in turns(a.warmup + a.steps, a.in_turn, ranks, a.turn):
            tokens = batch_tokens(s, step).astype(np.int32)
            batch = {
                k: np.ascontiguousarray(w)
                for k, w in (("inputs", tokens[:, :-1]), ("targets", tokens[:, 1:]))
            }
            start, busy = time.perf_counter(), time.process_time()
            report = engine.train_step(step, LR, batch, settle=False)
            seconds.append(time.perf_counter() - start)
            processor.append(time.process_time() - busy)
            if (step + 1) % a.turn == 0:
                engine.settle()  # none of this program's work may continue in the turn of another program
            losses.append(float(report.loss))
            exposed.append(engine.step_seconds["messages"])
        used = gathered(comm, {"program": program, "now": memory_of("self")})
    taken = range(a.warmup, len(seconds))
    timed = [seconds[i] for i in taken if a.turn == 1 or i % a.turn]
    row = {
        "name": "mudd_core",
        "tokens_per_second": s.tokens / statistics.median(timed),
        "spread": spread(timed),
        "peak_rss_mib": peak_rss_mib(),
        "isa": str(mc.isa()),
        "threads": a.threads,
        "micro_batch": micro_batch,
        "losses": losses,
        "state": state_lengths(engine, comm, 1 if a.zero == 3 else comm.nodes),
        "memory": engine.memory_report(),
        "tokens_of_a_step": s.tokens,
        "ranks": comm.world,
        "nodes": comm.nodes,
        "exposed": statistics.median(e / t for e, t in zip(exposed, seconds, strict=True)),
        "processor_seconds": statistics.median(processor[i] for i in taken if a.turn == 1 or i % a.turn),
        "memory_of_ranks": used,
        "sent": comm.counters(),
        "first_rank": comm.rank == 0,
    }
    comm.close()
    return row


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--family", choices=FAMILIES, default="transformer_pp")
    p.add_argument("--shape", choices=SHAPES, default="9M")
    p.add_argument("--threads", type=int, default=usable_cores())
    p.add_argument("--steps", type=int, default=20, help="timed steps")
    p.add_argument("--warmup", type=int, default=5, help="steps before the clock starts")
    p.add_argument("--in-turn", action="store_true", help="each step when a line comes in (turns.py)")
    p.add_argument(
        "--turn", type=int, default=1, help="steps of a turn; if several, the first one of each is not timed"
    )
    p.add_argument(
        "--micro-batch",
        type=int,
        help="train.micro_batch_size: sequences of one run, 0 = all; default: half of the batch, or 1,024 tokens",
    )
    p.add_argument("--precision", choices=("fp32", "bf16"), default="fp32", help="train.precision")
    p.add_argument(
        "--seq-len", type=int, help="length T of a sequence in place of the shape's, for long context"
    )
    p.add_argument("--batch", type=int, help="sequences in a step in place of the shape's")
    p.add_argument(
        "--recompute", action="store_true", help="train.recompute: norms and gates again in backward"
    )
    p.add_argument("--node", choices=("host", "rank"), default="host", help="rank: ranks share no memory")
    p.add_argument(
        "--expert", type=int, default=1, help="mesh.expert: ranks that hold the experts between them"
    )
    p.add_argument("--zero", type=int, choices=(1, 3), default=1, help="mesh.zero")
    p.add_argument("--weights", type=Path, help=".npz of initial weights")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p.parse_args()


def main() -> int:
    """Measure and print."""
    a = parse()
    shape = SHAPES[a.shape]
    s = replace(shape, T=a.seq_len or shape.T, B=a.batch or shape.B)
    row = measure(s, a.family, a)
    if not row.pop("first_rank"):
        return 0
    if a.json:
        print(json.dumps(row))
        return 0
    gflops = row["tokens_per_second"] * s.flops_per_token(a.family) / 1e9
    memory = ", ".join(f"{k} {v / 2**20:.0f}" for k, v in row["memory"].items())
    print(
        f"{a.family} {s.name}: {row['tokens_per_second']:.0f} tokens/s (spread {row['spread']:.0%}), "
        f"{gflops:.0f} GFLOP/s, {a.threads} threads, {row['isa']}; "
        f"peak memory {row['peak_rss_mib']:.0f} MiB ({memory}); "
        f"loss {row['losses'][0]:.4f} -> {row['losses'][-1]:.4f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
