"""Time whole fine-tuning steps of mudd_core on a prepared folder; print one line, or JSON for bench_tune.py.

    python bench/tune_step.py --folder FOLDER --shape SmolLM2-135M --threads 2 --steps 5

Model and engine are built as in `launch.py tune`: memory is planned and reserved, the base is read one tensor at a
time, and the adapters come from a folder. A step is forward and backward of all micro-batches, clip to norm 1, AdamW.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tune_options
from rank_memory import memory_of
from shapes import peak_rss_mib, usable_cores
from tune_shapes import ALPHA, LR, RANK, TuneShape
from turns import turns
from workload import BETA, BETAS, CLIP, EPS, answers_batch, forget_peak, tuning_batch, tuning_row

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
BASE, ADAPTER, IMPORTED, BEGUN = "base", "adapter", "imported", "begun"


def prepare(folder: Path) -> None:
    """Convert the folders of transformers and PEFT into folders that a run can start from, as `tune` does."""
    from mudd_core.checkpoint.weights_folder import write_folder
    from mudd_core.interop.peft_folder import read_adapter
    from mudd_core.run.store.json_files import read_saved_config
    from mudd_core.run.store.run_folder import RunFolder
    from mudd_core.tools.import_weights import command as import_command

    words = [str(folder / BASE), f"--workdir={folder / IMPORTED}", "--tokenizer=bytes"]
    import_command.main(words, is_base=True)
    model = read_saved_config(RunFolder(folder / IMPORTED)).model
    found = read_adapter(folder / ADAPTER, model, "[tune_step] --folder")
    weights = dict(sorted(found.weights.items()))
    write_folder(
        folder / BEGUN, {}, weights, shard_bytes=1 << 62, place="[tune_step]", names=("source.json", BEGUN)
    )


def run_config(s: TuneShape, a: argparse.Namespace) -> Any:
    """Return the config of the run."""
    from mudd_core import config as c
    from mudd_core.run.store.json_files import read_saved_config
    from mudd_core.run.store.run_folder import RunFolder

    adapted = a.method == "lora"
    begun = str(a.folder / BEGUN) if adapted else ""
    pairs = {"logical_shards": s.B // 2} if a.pairs else {}
    return c.Config(
        name="bench",
        model=read_saved_config(RunFolder(a.folder / IMPORTED)).model,
        train=c.TrainConfig(
            batch_size=s.B,
            seq_len=s.T,
            micro_batch_size=a.micro_batch,
            precision=a.precision,
            recompute=a.recompute,
            threads=a.threads,
            **pairs,
        ),
        loss=c.LossConfig(kind="dpo" if a.pairs else "tokens", beta=BETA),
        optim=c.OptimConfig(lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS, weight_decay=0.0, clip=CLIP),
        start=c.StartConfig(load_parameters_path=str(a.folder / IMPORTED)),
        tune=c.TuneConfig(method=a.method),
        lora=c.LoraConfig(rank=RANK, alpha=float(ALPHA), start_from=begun),
    )


def make_engine(config: Any) -> tuple[Any, Any]:
    """Return (model, engine) with the initial weights that the config names."""
    from mudd_core.run.build.base import load_base
    from mudd_core.run.build.grow import take_start
    from mudd_core.run.build.planned_model import plan_model
    from mudd_core.run.build.start_source import read_source
    from mudd_core.run.build.stored_types import stored_in

    model, engine, _ = plan_model(config.model, config, stored=stored_in(config))
    if config.tune.method == "lora":
        load_base(config, model, None).settle(model, fresh=True)
    else:
        take_start(config, model, read_source(config.start.load_parameters_path))
    return model, engine


def anonymous_mib() -> float:
    """Return the anonymous and shared resident memory of this process in MiB."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[:1] in (["RssAnon:"], ["RssShmem:"])) / 1024


def save_adapters(model: Any, file: Path) -> None:
    """Write the adapters under the names of PEFT."""
    from mudd_core.engine.lora import is_adapter
    from mudd_core.interop.peft_folder import adapter_tensors

    trained = {name: value for name, value in model.parameters.items() if is_adapter(name)}
    np.savez(file, **dict(adapter_tensors(model.config, trained)))


def with_reference(model: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Add the log-probabilities of the answers under the model, whose adapters have no effect yet."""
    from mudd_core.config import LossConfig
    from mudd_core.data.pipelines.pair_rows import thirds

    rule = model.pairs
    model.pairs = LossConfig(kind="orpo", nll="answer")  # the same log-probabilities, without a reference
    planned = model.plan("evaluate", *batch["inputs"].shape)
    planned.fill(batch)
    planned.executor.run()
    values = planned.executor.get(planned.outputs[3]).tolist()
    model.pairs = rule
    return {**batch, "reference": thirds(values)}


def batches_of(s: TuneShape, a: argparse.Namespace, model: Any) -> list[dict[str, Any]]:
    """Return the batches of all steps."""
    steps = range(a.warmup + a.steps)
    if not a.pairs:
        return [dict(tuning_batch(s, step, a.counted)) for step in steps]
    found = [with_reference(model, dict(answers_batch(s, step))) for step in steps]
    model.drop_plans()
    return found


def measure(s: TuneShape, a: argparse.Namespace) -> dict[str, Any]:
    """Run the steps; time and memory are measured after the warm-up."""
    import mudd_core as mc

    mc.set_num_threads(a.threads)
    model, engine = make_engine(run_config(s, a))
    batches = batches_of(s, a, model)
    loaded = peak_rss_mib()
    now = tune_options.clock(a.threads)
    losses, seconds, most, anonymous = [], [], memory_of("self"), 0.0
    for step in turns(a.warmup + a.steps, a.in_turn):
        if step == a.warmup:
            forget_peak()
        start = now()
        report = engine.train_step(step, LR, batches[step])
        seconds.append(now() - start)
        losses.append(float(report.loss))
        most = max(most, memory_of("self"), key=lambda one: one["pss"])
        anonymous = max(anonymous, anonymous_mib())
    if a.save is not None:
        save_adapters(model, a.save)
    return {
        "name": f"mudd_core {a.method}{', dpo' if a.pairs else ''}",
        **tuning_row(s, seconds, a.warmup, losses, loaded, most["pss"]),
        "anonymous_mib": anonymous,
        "isa": str(mc.isa()),
        "threads": a.threads,
        "memory": engine.memory_report(),
    }


def parse() -> argparse.Namespace:
    """Parse the command line."""
    p = tune_options.parser(__doc__, usable_cores())
    p.add_argument("--method", choices=("lora", "full"), default="lora", help="tune.method")
    p.add_argument(
        "--micro-batch", type=int, default=0, help="train.micro_batch_size; 0 = all rows, as tune has it"
    )
    p.add_argument("--pairs", action="store_true", help="DPO of pairs of answers")
    p.add_argument("--recompute", action="store_true", help="train.recompute")
    p.add_argument("--json", action="store_true", help="print one JSON object")
    return p.parse_args()


def main() -> int:
    """Measure and print."""
    a = parse()
    if a.prepare:
        prepare(a.folder)
        return 0
    row = measure(tune_options.shape_of(a), a)
    if a.json:
        print(json.dumps(row))
        return 0
    memory = ", ".join(f"{k} {v / 2**20:.0f}" for k, v in row["memory"].items())
    print(
        f"{a.shape}, {row['name']}: {row['tokens_per_second']:.0f} tokens/s (spread {row['spread']:.0%}), "
        f"{a.threads} threads, {row['isa']}, {a.precision}; peak of the steps {row['peak_rss_mib']:.0f} MiB, Pss "
        f"{row['pss_mib']:.0f} MiB, anonymous and shared {row['anonymous_mib']:.0f} MiB ({memory}); "
        f"loss {row['losses'][0]:.4f} -> {row['losses'][-1]:.4f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
