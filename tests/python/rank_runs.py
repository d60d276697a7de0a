"""Training steps by ranks that are threads of this process, and their results."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import mudd_core as mc
from awake_clock import AwakeClock
from mudd_core import _core, dist
from mudd_core.checkpoint import dtypes, is_weight
from mudd_core.cli.argv import parse
from mudd_core.cli.rank import read_as_rank
from mudd_core.config import Config, OptimConfig, TrainConfig
from mudd_core.config.fields import replace_path
from mudd_core.config.schema import lora_of
from mudd_core.engine.engine import Engine
from mudd_core.engine.state import MOMENTS
from mudd_core.run.build.planned_model import cut_of
from mudd_core.run.ranks.ranks import Ranks
from tiny_run_config import get_config

Result = TypeVar("Result")


def _comms(world: int, node_size: int | None, late: float, **network: Any) -> list[dist.Comm]:
    if not late:
        return dist.threads(world, node_size, **network)
    longest = network.pop("longest_message")
    cores = _core.testing.late_thread_ranks(world, node_size or world, longest, late, **network)
    return [dist.Comm(core, False) for core in cores]


def on_ranks(
    work: Callable[[dist.Comm], Result],
    world: int,
    node_size: int | None = None,
    limit: float = 120.0,
    late: float = 0.0,
    **network: Any,
) -> list[Result]:
    """Return the result of `work` on every rank, each a thread; raise the first error.

    limit: seconds until hanging ranks are an error. late: least delay of each message in seconds; its memory is NaN
    until it arrives. network: arguments of dist.threads.
    """
    results: list[Any] = [None] * world
    errors: list[BaseException] = []

    def run(comm: dist.Comm) -> None:
        try:
            results[comm.rank] = work(comm)
        except BaseException as error:
            errors.append(error)
            comm.fail(70, repr(error))

    comms = _comms(world, node_size, late, **network)
    threads = [threading.Thread(target=run, args=(comm,), daemon=True) for comm in comms]
    for thread in threads:
        thread.start()
    clock = AwakeClock()
    for thread in threads:
        while thread.is_alive() and clock.look() < limit:
            thread.join(0.5)
    hangs = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if errors:
        raise errors[0]
    if hangs:
        comms[0].fail(70, "a rank hangs")  # otherwise the threads would wait during the next tests
        raise AssertionError(f"ranks {hangs} hang")
    return results


def without_time(said: str) -> str:
    """Return the output without the seconds at its end."""
    return said.rpartition(", ")[0] if said.endswith(" s\n") else said


def by_threads(words: list[str], world: int, node_size: int) -> list[int]:
    """Return the exit codes of a command that reads a run, by ranks that are threads of this process."""
    return on_ranks(lambda comm: read_as_rank(parse(words), Ranks(comm)), world, node_size)


@dataclass
class Trained:
    """Reports of all steps, the final weights and joined moments, and the metrics of the last step."""

    losses: list[str] = field(default_factory=list)
    norms: list[str] = field(default_factory=list)
    state: dict[str, bytes] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)


def batch_of(config: Config, step: int) -> dict[str, Any]:
    """Return reproducible random tokens; some targets are ignored."""
    rng = np.random.default_rng([config.train.seed, step])
    shape = (config.train.batch_size, config.train.seq_len)
    inputs, targets = (rng.integers(0, config.model.vocab_size, shape, dtype=np.int32) for _ in range(2))
    targets[rng.random(shape) < 0.1] = -1
    return {"inputs": inputs, "targets": targets}


def experts_of(comm: dist.Comm, config: Config) -> _core.ExpertGroup | None:
    """Return the ranks among which the experts are sharded; None if the config does not shard them."""
    mesh = config.mesh
    return comm.expert_group(mesh.expert, mesh.expert_room) if mesh.expert > 1 and comm.world > 1 else None


def train_as(
    comm: dist.Comm, config: Config, steps: int = 3, stored: dict[str, str] | None = None
) -> tuple[Trained, list[tuple[str, int, bytes]]]:
    """Train from the config's seed as one rank; return the results and its parts of the moments and sharded weights."""
    model = mc.Model(
        config.model,
        seed=config.train.seed,
        precision=config.train.precision,
        comm=comm if comm.world > 1 else None,
        experts=experts_of(comm, config),
        cut=cut_of(config.model, config, comm),
        stored=stored,
        lora=lora_of(config),
    )
    engine = Engine(config, model)
    done = Trained()
    for step in range(steps):
        report = engine.train_step(step, config.optim.lr, batch_of(config, step), settle=step + 1 == steps)
        assert report.finite, step
        done.losses.append(float(report.loss).hex())
        done.norms.append(float(report.grad_norm).hex())
    done.metrics = engine.metrics()
    if not model.store.holds_all:
        return done, [*moments(engine), *weights(engine)]
    done.state = {name: value.tobytes() for name, value in model.parameters.items()}
    return done, moments(engine)


def train(
    config: Config,
    world: int,
    steps: int = 3,
    node_size: int | None = None,
    stored: dict[str, str] | None = None,
    **network: Any,
) -> Trained:
    """Train from the config's seed. Raise an error unless the reports of all ranks are equal."""
    results = on_ranks(lambda comm: train_as(comm, config, steps, stored), world, node_size, **network)
    first = results[0][0]
    for done, _ in results[1:]:
        assert done == first
    parts: Sequence[tuple[str, int, bytes]] = sorted({part for _, mine in results for part in mine})
    for name, _, data in parts:
        first.state[name] = first.state.get(name, b"") + data
    return first


def joined_weights(comm: dist.Comm, parts: Iterable[tuple[str, int, bytes]]) -> dict[str, bytes]:
    """Return whole weights from the parts of the ranks, also if ranks are processes."""
    mine = [(name, begin, data.hex()) for name, begin, data in parts if is_weight(name)]
    everybody = comm.all_gather(json.dumps(mine).encode())
    state: dict[str, bytes] = {}
    for name, _, data in sorted({tuple(part) for one in everybody for part in json.loads(one)}):
        state[name] = state.get(name, b"") + bytes.fromhex(data)
    return state


def weights(engine: Engine) -> list[tuple[str, int, bytes]]:
    """Return the weights of this rank like moments(), in float32."""
    return [
        (part.name, part.begin, dtypes.as_float32(part.array).tobytes())
        for part in engine.state_parts()
        if is_weight(part.name)
    ]


def moments(engine: Engine) -> list[tuple[str, int, bytes]]:
    """Return (name, first element, bytes) of every part of a moment on this rank."""
    return [
        (part.name, part.begin, part.array.tobytes())
        for part in engine.state_parts()
        if part.name.partition("/")[0] in MOMENTS
    ]


def config_in_shards(model: Any, *, optim: OptimConfig | None = None, **fields: Any) -> Config:
    """Return a config of 8 sequences in 8 shards, for any number of ranks. fields: of config.train."""
    sizes = {"batch_size": 8, "seq_len": 16, "seed": 5, "logical_shards": 8, "threads": 1}
    train = TrainConfig(**{**sizes, **fields})
    return Config(name=model.family, model=model, train=train, optim=optim or OptimConfig(lr=3e-3))


def config_of(text: Path, **fields: Any) -> Config:
    """Return a run of 8 steps on a folder of documents, with these fields of the config."""
    config = get_config()
    short = {"train.steps": 8, "train.save_every": 4, "train.eval_every": 4, "train.log_every": 2}
    data = {"data.path": str(text), "data.cache_dir": str(text.parent / "cache")}
    for path, value in {**short, **data, **fields}.items():
        config = replace_path(config, path, value)
    return config
