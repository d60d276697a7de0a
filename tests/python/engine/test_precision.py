"""bf16: activations stored in 16 bits; the same bits in both executors and for any threads; results near fp32."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from both_executors import in_both_executors, same
from mudd_core.engine.model import Model
from small_models import CASES, make, make_batch


def make_bf16(name: str) -> tuple[Model, Any]:
    """Return the small model of this name in bf16, with the same weights as in fp32."""
    model, cfg, _ = make(name)
    ours = Model(model.config, precision="bf16", initialize=False)
    for parameter, value in model.parameters.items():
        ours.set_parameter(parameter, value)
    return ours, cfg


@pytest.mark.parametrize("shape", [(4, 9), (8, 33)])
@pytest.mark.parametrize("name", CASES)
def test_planned_equals_immediate(name: str, shape: tuple[int, int]) -> None:
    model, cfg = make_bf16(name)
    batch = make_batch(cfg.vocab_size, *shape)
    in_both_executors(model, batch, shards=4)


@pytest.mark.parametrize(
    "options",
    [
        {"reuse": False, "poison": True},
        {"recompute": True, "poison": True},
        {"shift": 24},
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_planner_switches_never_change_bits(name: str, options: dict[str, Any]) -> None:
    model, cfg = make_bf16(name)
    batch = make_batch(cfg.vocab_size, 4, 17)
    want = model.loss_and_gradients(batch, shards=4)
    assert same(model.loss_and_gradients(batch, shards=4, **options), want)


@pytest.mark.parametrize("name", CASES)
def test_threads_never_change_bits(name: str) -> None:
    model, cfg = make_bf16(name)
    batch = make_batch(cfg.vocab_size, 4, 40)
    results = []
    try:
        for threads in (1, 3):
            mc.set_num_threads(threads)
            results.append(model.loss_and_gradients(batch, shards=4))
    finally:
        mc.set_num_threads(0)
    assert same(*results)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_near_those_of_fp32(name: str) -> None:
    model, cfg, _ = make(name)
    ours, _ = make_bf16(name)
    batch = make_batch(cfg.vocab_size, 4, 33)
    loss, gradients = model.loss_and_gradients(batch)
    rounded_loss, rounded = ours.loss_and_gradients(batch)
    assert rounded_loss != loss  # something is rounded
    assert abs(rounded_loss - loss) < 0.02 * loss
    everything = np.sqrt(sum(np.square(g, dtype=np.float64).sum() for g in gradients.values()))
    for parameter, gradient in gradients.items():  # for a key's bias the exact gradient is zero
        error = np.linalg.norm(rounded[parameter] - gradient)
        assert error <= 0.15 * np.linalg.norm(gradient) + 1e-3 * everything, parameter


@pytest.mark.parametrize("name", CASES)
def test_decoding_gives_the_bits_of_full_passes(name: str) -> None:
    model, cfg = make_bf16(name)
    prompt = make_batch(cfg.vocab_size, 1, 11)["inputs"]
    out = list(model.generate(prompt, max_tokens=12))
    full = np.concatenate([prompt[0], np.array(out, np.int32)])
    logits = model.logits(full)
    assert logits.dtype == np.float32
    generator = model._generator
    assert generator is not None
    assert np.array_equal(generator.feed(full, 0, generator.take_caches()), logits)
    assert [int(row.argmax()) for row in logits[10:-1]] == out


def test_a_bf16_graph_needs_little_more_than_half_the_memory_between_passes() -> None:
    import dataclasses

    kept = {}
    for precision in ("fp32", "bf16"):
        config = dataclasses.replace(CASES["llama_gqa"][0], d_model=96, d_ff=256, n_layer=6, max_seq_len=256)
        model = Model(config, precision=precision, initialize=False)
        table = model.plan("train", 4, 256).executor.memory_table()
        kept[precision] = sum(
            size
            for _, kind, size, first, last, _ in table
            if kind in ("result", "saved") and last > first + 1
        )
    assert kept["bf16"] < 0.62 * kept["fp32"]


@pytest.mark.parametrize("family", ["transformer_pp", "gpt2", "tokenformer", "muddformer", "mixtral"])
def test_the_whole_arena_of_bf16_is_at_most_six_tenths(family: str) -> None:
    """The scratch of the loss is included. The shape is the smallest of the bench, with half its batch (a mixture: all
    of it) and two threads, each with its fp32 scratch.
    """
    from mudd_core import config as c

    before = mc.num_threads()
    mc.set_num_threads(2)

    sizes: dict[str, Any] = {
        "vocab_size": 8192,
        "max_seq_len": 256,
        "d_model": 256,
        "n_layer": 6,
        "n_head": 4,
    }
    configs: dict[str, Any] = {
        "transformer_pp": lambda: c.TransformerPPConfig(**sizes, d_ff=704),
        "gpt2": lambda: c.GPT2Config(**sizes, d_ff=1024),
        "tokenformer": lambda: c.TokenFormerConfig(**sizes, slot_num=192, ffn_slot_num=768),
        "muddformer": lambda: c.MUDDFormerConfig(**sizes, d_ff=704, ffn_realloc=False),
        "mixtral": lambda: c.MixtralConfig(**sizes, d_ff=704, n_expert=8, top_k=2),
    }
    shards = 8 if family == "mixtral" else 4
    arena = {
        precision: Model(configs[family](), precision=precision, booked_only=True)
        .plan("train", shards, 256, shards=shards)
        .executor.arena_bytes
        for precision in ("fp32", "bf16")
    }
    mc.set_num_threads(before)
    assert arena["bf16"] <= 0.6 * arena["fp32"]


def test_every_family_on_emulated_amx() -> None:
    """Run in a separate process, because kernels are chosen once, with families that together use every op."""
    families = "llama_gqa", "gpt2", "mudd", "tokenformer", "mup", "mixtral", "mudd_experts"
    tests = "near_those_of_fp32", "threads_never", "full_passes"
    cases = " or ".join(f"{test} and [{family}]" for test in tests for family in families)
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", __file__, "-k", cases]
    run = subprocess.run(
        command, env={**os.environ, "MUDD_EMULATE": "emu_amx_bf16"}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-4000:]
    assert f"{len(tests) * len(families)} passed" in run.stdout


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[model\] precision: expected one of fp32, bf16"):
        Model(CASES["gpt2"][0], precision="fp16")
    with (
        pytest.raises(ValueError, match=r"\[precision\] name: expected one of fp32, bf16"),
        mc.precision("half"),
    ):
        pass
