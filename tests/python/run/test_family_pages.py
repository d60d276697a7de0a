"""The family's part of the page, compared with values computed here; and the note if a checkpoint cannot be
measured.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core.base.types import Array, Json
from mudd_core.config import Config, MixtralConfig, load_config
from mudd_core.engine.flops import flops_per_token
from mudd_core.engine.muddformer_weights import measured_weights
from mudd_core.engine.parameter_kinds import parameter_kinds
from mudd_core.engine.slot_use import PROJECTIONS, slot_use
from mudd_core.run.loop.trainer import Trainer
from mudd_core.run.report.families import held_out as held_out_module
from mudd_core.run.report.families.experts import expert_loads, experts
from mudd_core.run.report.families.held_out import held_out
from mudd_core.run.report.families.measured import by_use
from mudd_core.run.report.page.run_page import run_page
from mudd_core.run.store.run_folder import RunFolder
from page_runs import records_of, update, write_run

GELU = np.vectorize(lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def config_of(text: Path, family: str, *words: str) -> Config:
    base = [
        *(f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", "data.tokenizer=bytes"),
        *("train.steps=3", "train.log_every=1", "train.batch_size=4", "train.seq_len=32", "train.threads=1"),
        *("eval.max_batches=1", "sample.every=1", "sample.max_tokens=4"),
    ]
    return load_config(f"{family}/tiny.py", [*base, *words])


def trained(folder: Path, config: Config) -> RunFolder:
    with Trainer(config, folder) as trainer:
        trainer.fit(progress=False)
    return RunFolder(folder)


def maps(page: str) -> dict[str, dict[str, Json]]:
    """Return the data of each heat map for page.js, by title."""
    found = re.findall(
        r"<h3>([^<]*)</h3>(?:(?!<h3>).)*?<script type=\"application/json\">(.*?)</script>", page, re.S
    )
    return {title: values for title, text in found if "frames" in (values := json.loads(text))}


def cells(one: dict[str, Json], frame: int = -1) -> Array:
    rows, columns, frames = one["rows"], one["columns"], one["frames"]
    assert isinstance(rows, list) and isinstance(columns, list) and isinstance(frames, list)
    return np.array(frames[frame], np.float64).reshape(len(rows), len(columns))


def test_the_map_of_experts_counts_the_choices_of_the_router(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, "mixtral")
    assert isinstance(config.model, MixtralConfig)
    wanted = []
    with Trainer(config) as trainer:
        for _ in range(3):
            batch = trainer.engine.batcher.arrays(4 * trainer.step_done, 4)
            logits = trainer.model.capture(batch["inputs"], "*.router.logits")
            counts = np.zeros((config.model.n_layer, config.model.n_expert))
            for layer, values in enumerate(logits.values()):
                chosen = np.argsort(-values, axis=-1, kind="stable")[..., : config.model.top_k]
                counts[layer] = np.bincount(chosen.ravel(), minlength=config.model.n_expert)
            wanted.append(counts * config.model.n_expert / (4 * 32 * config.model.top_k))
            trainer.step()
    records = records_of(trained(tmp_path / "run", config))
    steps, loads = expert_loads(records, config.model)
    assert steps.tolist() == [1, 2, 3]
    # NumPy adds in another order.
    np.testing.assert_allclose(loads, wanted, atol=2e-6)
    shown = maps(run_page(records))["Load of each expert"]
    assert shown["steps"] == [1, 2, 3]
    # The page has few digits.
    np.testing.assert_allclose([cells(shown, step) for step in range(3)], wanted, rtol=1e-3, atol=1e-6)


def test_a_run_without_the_metrics_of_experts_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [update(1)], config=load_config("mixtral/tiny.py", []))
    section = experts(records_of(folder))
    assert section is not None and "no expert_load yet" in section.body
    assert experts(records_of(write_run(tmp_path / "dense", [update(1)]))) is None


def test_the_maps_of_connections_are_the_mean_weights_of_the_checkpoint(
    tmp_path: Path, tiny_text: Path
) -> None:
    config = config_of(tiny_text, "muddformer")
    folder = trained(tmp_path / "run", config)
    run = mc.load_run(folder.path)
    with Trainer(folder.path) as trainer:
        inputs = next(iter(trainer.validation_batches()))["inputs"]
    weights = run.model.capture(inputs, "*.mix.weights")
    shown = maps(run_page(records_of(folder)))
    for place, stream in enumerate(("query", "key", "value", "residual")):
        found = cells(shown[f"Mean weight, {stream}"])
        spread = cells(shown[f"Spread over tokens, {stream}"])
        for layer in range(3):
            own = weights[f"blocks.{layer}.mix.weights"].reshape(inputs.size, 4, layer + 2)[:, place]
            # NumPy adds in another order.
            np.testing.assert_allclose(found[layer, : layer + 2], own.mean(0), rtol=2e-3, atol=1e-5)
            np.testing.assert_allclose(spread[layer, : layer + 2], own.std(0), rtol=2e-3, atol=1e-5)
            assert np.isnan(found[layer, layer + 2 :]).all()
    assert measured_weights(run.model, [inputs]).tokens == inputs.size


def theta(kind: str, a: Array, eps: float) -> Array:
    """Return the activated scores of rows a [..., n], as docs/maths/tokenformer.md defines them."""
    n = a.shape[-1]
    length = np.sqrt((a * a).sum(-1, keepdims=True))
    if kind == "l2_norm_gelu":
        return GELU(np.sqrt(n) * a / (length + eps))
    if kind == "softmax":
        e = np.exp(a - a.max(-1, keepdims=True))
        return n * e / e.sum(-1, keepdims=True)
    g = GELU(a)
    return np.sqrt(n) * g / (np.sqrt((g * g).sum(-1, keepdims=True)) + eps)


@pytest.mark.parametrize("kind", ["l2_norm_gelu", "gelu_l2_norm", "softmax"])
def test_the_use_of_slots_is_that_of_the_scores(kind: str) -> None:
    shape = mc.config.TokenFormerConfig(
        vocab_size=61, max_seq_len=24, d_model=32, n_layer=2, n_head=2, slot_num=1100, normalize_type=kind,
        qkv_bias=kind == "softmax",
    )  # fmt: skip
    model = mc.Model(shape, seed=3)
    ids = np.random.default_rng(5).integers(0, 61, (2, 24))
    values = model.capture(ids)
    for use, (name, group, place) in zip(slot_use(model, ids), PROJECTIONS, strict=True):
        assert use.name == name and use.mass.shape == (2, shape.slots(group))
        for layer in range(2):
            part = f"blocks.{layer}." + ("ffn" if name == "ffn" else f"attn.{name}")
            key = model.parameters[f"{part}.key"].astype(np.float64)
            bias = model.parameters.get(f"{part}.key_bias", np.zeros(len(key)))
            scores = theta(kind, values[f"blocks.{layer}.{place}"] @ key.T + bias, shape.score_eps())
            sums = np.abs(scores).sum((0, 1))
            mass = sums / sums.sum()
            # NumPy adds in another order.
            np.testing.assert_allclose(use.mass[layer], mass, rtol=1e-3, atol=1e-9)
            entropy = -(mass * np.log(mass)).sum()
            # NumPy adds in another order.
            assert use.effective()[layer] == pytest.approx(np.exp(entropy) / len(mass), rel=1e-4)
            assert use.unused(0.5)[layer] == pytest.approx((mass < 0.5 / len(mass)).mean(), abs=2 / len(mass))
    halves = by_use(np.array([[0.0, 0.1, 0.2, 0.7]] * 2))
    np.testing.assert_allclose(halves, [[2.8, 0.8, 0.4, 0.0]] * 2)


def test_the_page_of_a_tokenformer_has_its_slots(tmp_path: Path, tiny_text: Path) -> None:
    folder = trained(tmp_path / "run", config_of(tiny_text, "tokenformer"))
    page = run_page(records_of(folder))
    shown = maps(page)
    assert [title.split(":")[0] for title in shown] == [f"Slots of {name}" for name, *_ in PROJECTIONS]
    first = cells(shown["Slots of q: 96 a layer, the most used first"])
    assert first.shape == (4, 32) and np.all(np.diff(first, axis=1) <= 0)
    # The page has few digits.
    np.testing.assert_allclose(first.mean(1), 1, rtol=1e-3)
    assert "Checkpoint of step 3, 4 held-out sequences of 32 tokens." in page


def test_the_table_of_mup_has_the_values_of_its_rule() -> None:
    config = load_config(
        "mup/tiny.py", ["model.d_model=256", "data.tokenizer=bytes", "optim.weight_decay=0.1"]
    )
    rate = config.optim.lr
    rows = {row[0]: row for row in parameter_kinds(config)}
    assert rows["blocks.*.attn.q.w"] == (
        *("blocks.*.attn.q.w", "4", "256 x 256", "matrix"),
        *(f"{256**-0.5:g}", "0.5", f"{rate / 2:g}", "0.1"),
    )
    assert rows["blocks.*.ffn.down.w"][4:7] == (f"{1024**-0.5:g}", "0.5", f"{rate / 2:g}")
    assert rows["head"][4:7] == (f"{1 / 256:g}", "0.5", f"{rate / 2:g}")
    assert rows["embed"] == ("embed", "", "257 x 256", "embedding", "1", "1", f"{rate:g}", "0.1")


def test_the_page_of_mup_has_the_statistics_that_were_logged(tmp_path: Path, tiny_text: Path) -> None:
    words = ("train.steps=2", "train.seq_len=16", "model.n_layer=2")
    plain = run_page(records_of(trained(tmp_path / "plain", config_of(tiny_text, "mup", *words))))
    assert "log.weights=true adds" in plain and "blocks.*.attn.q.w" in plain
    more = config_of(tiny_text, "mup", *words, "log.weights=true", "log.activations=true")
    page = run_page(records_of(trained(tmp_path / "more", more)))
    assert "Mean |update| over its rate" in page and "Mean |activation|" in page
    assert "log.weights=true adds" not in page


def test_a_checkpoint_that_cannot_be_measured_leaves_a_note(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_text, "muddformer", f"data.cache_dir={tmp_path / 'cache'}", "train.steps=1")
    folder = trained(tmp_path / "run", config)
    before = {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert "Mean weight, query" in run_page(records_of(folder))
    assert {str(path): path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before

    def note() -> str:
        page = run_page(records_of(folder))
        assert "Loss" in page and "Samples of text" in page and "Mean weight" not in page
        (found,) = re.findall(r"The newest checkpoint was not measured: ([^<]*)", page)
        return str(found)

    monkeypatch.setattr(held_out_module, "MOST_BYTES", 1 << 20)
    assert "a page reads at most 0 GiB" in note()
    monkeypatch.undo()
    shutil.move(tmp_path / "cache", tmp_path / "moved")
    assert note().startswith("the token cache of the run is missing") and not (tmp_path / "cache").exists()
    shutil.move(tmp_path / "moved", tmp_path / "cache")
    for name, value in (("cache", "stream"), ("pipeline", "mine.py:rows")):
        other = dataclasses.replace(config.data, **{name: value})
        page = run_page(records_of(folder, dataclasses.replace(config, data=other)))
        assert "its text is streamed or read by your own code" in page
    weights = folder.step_folder(1) / "model-00001-of-00001.safetensors"
    weights.write_bytes(weights.read_bytes()[:-5])
    assert "checkpoint" in note()
    shutil.rmtree(folder.checkpoint_folder)
    assert note() == "the run has no checkpoint yet."


def test_what_a_page_measures_is_bounded(
    tmp_path: Path, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tiny_text, "tokenformer", "train.steps=1")
    folder = trained(tmp_path / "run", config)
    assert held_out(folder, config).batch["inputs"].shape == (4, 32)
    forward = flops_per_token(config.model, 257, 32) / 3
    for tokens, shape in ((23.5, (1, 23)), (65, (2, 32)), (0.5, (1, 1))):
        monkeypatch.setattr(held_out_module, "MOST_FLOPS", tokens * forward)
        assert held_out(folder, config).batch["inputs"].shape == shape


def test_the_samples_of_a_run_are_on_its_page(tmp_path: Path, tiny_text: Path) -> None:
    config = config_of(tiny_text, "transformer_pp", "train.eval_every=1", "sample.prompt=<b>")
    page = run_page(records_of(trained(tmp_path / "run", config)))
    assert "Samples of text" in page and "<b>" not in page and page.count("&lt;b&gt;") >= 3
    assert [int(step) for step in re.findall(r">Step (\d+)<", page)] == [3, 2, 1]
