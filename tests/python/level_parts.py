"""Random cases of parts that are not ops but have kernels: first weights, sampling, decoding, training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from level_cases import Array
from level_draw import Draw
from mudd_core import _core, ops
from mudd_core.config import Config, OptimConfig, TrainConfig, TransformerPPConfig
from mudd_core.engine.engine import Engine
from mudd_core.engine.model import Model
from mudd_core.graph import scopes

Results = dict[str, Array | None]


def first_weights(draw: Draw) -> Results:
    """Initialize weights by every distribution, then store them in 16 bits."""
    store = _core.ParamStore()
    shape = (draw.size(), draw.size())
    kinds = ("normal", "truncated_normal", "uniform")
    stored = draw.pick(("float32", "bfloat16", "float16"))
    for kind in kinds:
        store.declare(
            kind, shape, role="matrix", fan_in=shape[0], fan_out=shape[1], init=kind, init_scale=0.7,
            trainable=stored == "float32", stored=stored,
        )  # fmt: skip
    store.allocate()
    store.initialize(draw.below(1 << 16))
    return {kind: np.array(store.values(kind)) for kind in kinds}


def random_numbers(draw: Draw) -> Results:
    begin, seed = draw.below(1000), draw.below(1 << 16)
    ends = (begin, begin + draw.size())
    return {
        "normal": _core.random_normal(*ends, seed=seed, purpose="here"),
        "uniform": _core.random_uniform(*ends, seed=seed, purpose="here"),
    }


def sample(draw: Draw) -> Results:
    logits = np.nan_to_num(draw.array(draw.pick((2, 7, 16, 17, 33, 130, 517)), scale=3.0))
    options = {
        "temperature": draw.pick((1.0, 0.0, 0.7)),
        "top_k": draw.pick((0, 1, 5)),
        "top_p": draw.pick((1.0, 0.8)),
    }
    taken = [_core.sample(logits, **options, seed=draw.below(1 << 16), position=p) for p in range(4)]
    return {"token": np.array(taken)}


def decoding(draw: Draw) -> Results:
    """Compute attention with a cache, in pieces."""
    groups, repeats, width = draw.pick((1, 2)), draw.pick((1, 2, 4)), draw.pick((8, 16, 17, 32, 64))
    pieces = [draw.size(33) for _ in range(draw.pick((1, 2, 3)))]
    room = sum(pieces) + draw.pick((0, 5))
    caches = [np.zeros((1, groups, room, width), np.float32) for _ in range(2)]
    found: Results = {}
    at = 0
    for piece in pieces:
        q = draw.array(1, piece, groups * repeats * width)
        k, v = (draw.array(1, piece, groups * width) for _ in range(2))
        with scopes.cached(at):
            found[f"output at {at}"] = ops.attention(
                q, k, v, None, None, *caches, n_head=groups * repeats, n_kv_head=groups
            )
        at += piece
    return found | {"keys": caches[0], "values": caches[1]}


def training(draw: Draw) -> Results:
    """Return weights and moments of a small model after updates by any optimizer."""
    settings = {spec.name: spec.settings for spec in _core.optimizer_specs()}
    optim = {"name": draw.pick(sorted(settings, key=lambda name: name != "muon"))}
    optim |= {one.field: draw.pick(one.choices) for one in settings[optim["name"]] if one.choices}
    optim["moment_dtype"] = draw.pick(("fp32", "bf16"))
    samples, length, steps = draw.pick((2, 1, 4)), draw.size(33), 2
    config = Config(
        name="levels",
        model=TransformerPPConfig(
            vocab_size=draw.pick((61, 17)), max_seq_len=33, d_model=draw.pick((36, 24, 48)), n_layer=1,
            n_head=6, n_kv_head=2, d_ff=draw.pick((52, 17, 64)),
        ),
        train=TrainConfig(steps=steps, batch_size=samples, seq_len=length),
        optim=replace(OptimConfig(), **optim),
    )  # fmt: skip
    engine = Engine(config, Model(config.model, seed=draw.below(1 << 16)))
    for step in range(steps):
        ids = draw.integers(config.model.vocab_size, samples, length + 1)
        batch = {"inputs": ids[:, :-1], "targets": ids[:, 1:]}
        engine.train_step(step, 0.02, {name: np.ascontiguousarray(part) for name, part in batch.items()})
    found: Results = {key: np.array(value) for key, value in engine.model.parameters.items()}
    return found | {key: np.array(value) for key, value in engine.state_tensors().items()}


PARTS: dict[str, Callable[[Draw], Results]] = {
    made.__name__: made for made in (decoding, first_weights, random_numbers, sample, training)
}
