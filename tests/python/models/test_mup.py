"""The muP family: configs, refused settings, rates by role, the coordinate check, transfer of rates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _h5, ops
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import Config, MupConfig, OptimConfig, load_config
from mudd_core.data.synthetic import text
from mudd_core.engine.model import Model
from mudd_core.engine.mup_statistics import STATISTICS, Probe
from mudd_core.engine.optimizer_groups import assign_scales, optimizer_groups
from mudd_core.run.build.plan_report import planned
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.mup_checks.check import Coordinates, Wider, coordinates
from mudd_core.tools.mup_checks.family import at_widths, checked_family
from near import REORDERED

SIZES = {"small": 128, "medium": 512, "base": 1024, "large": 2048, "huge": 8192}
SIZES |= {f"dm{128 << i}": 128 << i for i in range(7)}
PROXY = [32, 64, 128, 256]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread, because the models are too small for several."""
    mc.set_num_threads(1)
    yield
    mc.set_num_threads(0)


@pytest.mark.parametrize("name", [*SIZES, "tiny"])
def test_every_size_loads_and_plans_without_memory(name: str, tmp_path: Path) -> None:
    config = load_config(f"mup/{name}.py")
    model = config.model
    assert isinstance(model, MupConfig)
    assert model.scale == 1 / 128 and (model.d_head, model.d_base, model.ff_multiple) == (128, 128, 4.0)
    assert config.optim.decay == "all" and config.loss.normalize == "all_slots"
    theirs = load_config(f"mu_transformer/configs/{name}.py")
    assert theirs == (
        load_config("mup/small.py") if name == "tiny" else config
    )  # their tiny config also has width 128
    told = planned(config, RunFolder(tmp_path)).text
    if name == "tiny":
        small = load_config("mup/small.py").model
        assert model == dataclasses.replace(small, n_layer=4, vocab_size=0, max_seq_len=0)
        assert config.train.batch_size * config.train.seq_len == 2048
        return
    assert (model.d_model, model.n_layer, model.vocab_size) == (SIZES[name], 24, 32100)
    assert config.train.batch_size * config.train.seq_len == 2**18 and config.train.steps == 125_000
    assert f"{288 * SIZES[name] ** 2 + 2 * 32100 * SIZES[name]:,}" in told  # docs/maths/mup.md, 3.2


def test_d_head_alone_is_asked_for_its_scale() -> None:
    with pytest.raises(UserError, match=r"1 / d_head = 0.0625.*set model.qk_scale=0.0625"):
        load_config("mup/tiny.py", ["model.d_head=16"])
    with pytest.raises(UserError, match=r"1 / d_head = 0.03125"):  # also if the file sets another scale
        load_config("mup/check.py", ["model.d_head=32"])
    config = load_config("mup/tiny.py", ["model.d_head=16", "model.qk_scale=0.0625"])
    assert config.model.scale == 0.0625
    with pytest.raises(UserError, match=r"optim\.rule: expected sp for family"):
        load_config("tiny.py", ["optim.rule=mup"])
    wide = ["model.d_base=256", "optim.rule=mup"]
    with pytest.raises(UserError, match=r"d_base: expected at most d_model \(128\) for optim.rule=mup"):
        load_config("mup/tiny.py", wide)
    load_config("mup/tiny.py", [*wide, "optim.rule=abs_mup"])  # its rates do not depend on a base width
    for faulty in (
        MupConfig(d_model=96),
        MupConfig(d_model=64, d_head=64),
    ):
        assert faulty.faults()


@pytest.mark.parametrize("rule", ["mup", "abs_mup", "sp"])
def test_rates_and_first_values_follow_the_table(rule: str) -> None:
    shape = MupConfig(
        vocab_size=50,
        max_seq_len=8,
        d_model=64,
        n_layer=1,
        d_base=16,
        d_head=16,
        ff_multiple=2.67,
        qk_scale=1 / 16,
        proj_biases=True,
        norm_gains=True,
    )
    model = Model(shape)
    config = Config(model=shape, optim=OptimConfig(rule=rule, eps_scaling=True, decay="all"))
    assign_scales(model.store, config, optimizer_groups(model.store, config.optim))
    hidden = {"mup": 1 / 4, "abs_mup": 1 / 64, "sp": 1.0}[rule]
    rates = {"blocks.0.ffn.down.w": 1 / (2.67 * 64) if rule == "abs_mup" else hidden, "head": hidden}
    for name in model.store.names():
        about = model.store.describe(name)
        is_matrix = name.endswith(".w") or name == "head"
        want = rates.get(name, hidden) if is_matrix else 1.0
        assert about["lr_scale"] == pytest.approx(want) and about["eps_scale"] == pytest.approx(want), name
    deviations = {
        "embed": 1.0,
        "blocks.0.attn.q.w": 64**-0.5,
        "blocks.0.ffn.down.w": 170**-0.5,
        "head": 1 / 64,
    }
    for name, deviation in deviations.items():
        # The standard deviation of a sample.
        assert np.std(model.parameters[name]) == pytest.approx(deviation, rel=0.05), name
    zeros = Model(dataclasses.replace(shape, q_init="zero", r_init="zero", u_init="zero")).parameters
    for name in ("blocks.0.attn.q.w", "blocks.0.attn.o.w", "blocks.0.ffn.down.w", "head"):
        assert not zeros[name].any()
    sp = Model(dataclasses.replace(shape, u_init="sp")).parameters["head"]
    # The standard deviation of 4,096 random values is only near the configured one.
    assert np.std(sp) == pytest.approx(64**-0.5, rel=0.05)


@pytest.mark.parametrize(
    ("scores", "inner"),
    [
        ("softmax", "relu"),
        ("elu", "swiglu"),
        ("norm_sqrelu", "gelu"),
        ("sqrelu", "sqrelu"),
        ("softmax", "mish"),
    ],
)
def test_the_probe_sees_what_the_model_computes(scores: str, inner: str) -> None:
    shape = MupConfig(
        vocab_size=50,
        max_seq_len=24,
        d_model=32,
        n_layer=2,
        d_base=16,
        d_head=16,
        qk_scale=1 / 16,
        qk_norm=True,
        kv_mqa=True,
        proj_biases=True,
        attn_act_name=scores,
        ff_act_name=inner,
    )
    model, length = Model(shape), 20  # more keys than the head width
    ids = np.arange(2 * length, dtype=np.int32).reshape(2, length)
    inside = Probe(model, 2, length).read(ids)
    assert set(inside) == {"logits"} | {f"{name}_{layer:02d}" for name in STATISTICS for layer in (0, 1)}
    np.testing.assert_array_equal(inside["logits"], model.logits(ids))
    w = model.parameters
    for name, theirs in (("aq", "q"), ("ak", "k")):  # before their norm, as in the original
        product = ops.linear(inside["ax_01"], w[f"blocks.1.attn.{theirs}.w"], w[f"blocks.1.attn.{theirs}.b"])
        np.testing.assert_array_equal(inside[f"{name}_01"], product)
    q, k = (inside[f"{name}_01"].reshape(2, length, -1, 16).astype(np.float64) for name in ("aqr", "akr"))
    assert np.mean(q**2) == pytest.approx(1, rel=1e-3)  # after the norm
    expected = np.einsum("bthd,bsd->bhts", q, k[:, :, 0]) / 16
    # NumPy's sums have another order.
    np.testing.assert_allclose(inside["as_01"], expected, rtol=2e-6, atol=2e-7)
    probabilities = inside["ap_01"]
    assert probabilities.shape == (2, 2, length, length) and not np.triu(probabilities, 1).any()
    if scores == "softmax":
        np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=REORDERED)
    values = np.repeat(inside["av_01"][:, None], 2, axis=1)  # one value head for both query heads
    mixed = np.einsum("bhqk,bhkd->bqhd", probabilities, values).reshape(2, length, 32)
    # NumPy's sums have another order.
    np.testing.assert_allclose(mixed, inside["ao_01"], atol=1e-5)
    h = inside["fh_00"]
    if inner == "swiglu":
        gate, up = (np.ascontiguousarray(half) for half in np.split(h, 2, axis=-1))
        activated = ops.glu(gate, up, activation="silu")
    else:
        name = {"relu": "relu", "gelu": "gelu_tanh", "sqrelu": "squared_relu"}.get(inner, inner)
        activated = ops.activation(h, activation=name)
    np.testing.assert_array_equal(activated, inside["fa_00"])
    # NumPy's sums have another order.
    np.testing.assert_allclose(
        inside["fa_00"] @ w["blocks.0.ffn.down.w"] + w["blocks.0.ffn.down.b"], inside["fr_00"], atol=1e-4
    )


# ---------------------------------------------------------------- the check


def proxy(**changes: Any) -> list[Config]:
    """Return the configs of the check's small family; changes: fields of optim or model."""
    config = load_config("mup/check.py")
    for name, value in changes.items():
        section = "optim" if hasattr(config.optim, name) else "model"
        part = dataclasses.replace(getattr(config, section), **{name: value})
        config = dataclasses.replace(config, **{section: part})
    return checked_family(at_widths(config, PROXY), "mup check")


def test_mup_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mup", "check", "--steps=20", "--threads=1", f"--out={tmp_path}"]) == 0
    told = capsys.readouterr().out
    assert told.endswith("mup check: passed\n") and "logits" in told
    assert (tmp_path / "coordinates.svg").read_text().count("<polyline") == len(STATISTICS) + 1
    assert (tmp_path / "wider.svg").read_text().count("<polyline") == len(PROXY)
    with _h5.File.open(str(tmp_path / "check.h5")) as file:
        shapes = json.loads(file.text("shapes"))
        assert shapes["change_logits"] == {"shape": [3, 4, 3], "axes": "step, width, seed"}
        assert shapes["losses"]["shape"] == [4, 3, 20]
        change, widths = file.read("change_logits").reshape(3, 4, 3), file.read("widths")
    assert widths.tolist() == PROXY
    slope = np.polyfit(np.repeat(np.log2(widths), 3), np.log2(change[0]).ravel(), 1)[0]
    assert f"{slope:+.3f}" in next(line for line in told.splitlines() if line.startswith("  logits"))


def test_sp_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mup", "check", "--steps=0", "--threads=1", f"--out={tmp_path}", "optim.rule=sp"]) == 1
    assert "FAILED" in capsys.readouterr().out


def test_the_head_of_sp_under_the_rates_of_mup_fails_at_the_logits() -> None:
    assert {name for name, _, _ in coordinates(proxy(u_init="sp"), 1).failures()} >= {"logits"}


@pytest.mark.parametrize(
    ("unscaled", "seen"),
    [
        ("attn.q.w", "aq"),
        ("attn.k.w", "ak"),
        ("attn.v.w", "av"),
        ("attn.o.w", "ar"),
        ("ffn.up.w", "fh"),
        ("ffn.down.w", "fr"),
        ("head", "logits"),
    ],
)
def test_one_class_of_matrices_left_unscaled_fails(unscaled: str, seen: str) -> None:
    failures = coordinates(proxy(), 1, unscaled).failures()
    assert any(name.partition("_")[0] == seen and slope > 0.3 for name, _, slope in failures)


def test_verdicts_on_made_up_numbers() -> None:
    flat = np.full((3, 4, 3), 0.5)
    growing = flat * np.array([1.0, 1.08, 1.16, 1.25])[None, :, None]  # slope 0.107
    found = Coordinates(PROXY, {"logits": growing, "aq_00": flat, "ak_00": flat * np.nan})
    assert {name for name, _, _ in found.failures()} == {"logits", "ak_00"}
    losses = np.array([[[2.0, 1.0], [2.1, 1.1], [1.9, 0.9]], [[2.3, 1.0], [2.4, 1.1], [2.2, 1.0]]])
    # The table has four digits.
    assert Wider([32, 64], losses, 0).failures() == [
        (32, 64, 1, pytest.approx(0.3), pytest.approx(0.1633, abs=1e-3))
    ]
    assert not Wider([32, 64], losses, 1).failures()


@pytest.mark.parametrize("command", ["check", "transfer"])
@pytest.mark.parametrize("field", ["d_base=64", "d_head=16", "ff_multiple=2"])
def test_sets_of_widths_that_are_no_family_are_refused(
    command: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = []
    for i, width in enumerate((64, 128, 256, 512)):
        path = tmp_path / f"m{width}.py"
        name, value = field.split("=")
        other = f"{name}={value}, " if i == 2 else ""
        scale = 1 / 16 if other.startswith("d_head") else 1 / 8
        path.write_text(
            "from dataclasses import replace\nfrom mudd_core.config import read_config\n"
            "def get_config():\n    c = read_config('mup/check.py')\n"
            f"    return replace(c, model=replace(c.model, {other}d_model={width}, qk_scale={scale}))\n"
        )
        words.append(f"--config={path}")
    assert main(["mup", command, f"--out={tmp_path / 'out'}", *words]) == 2
    told = capsys.readouterr().err
    assert f"{field.partition('=')[0]} differs over the widths" in told and "at width 256" in told
    assert "rates transfer only where d_base, d_head and ff_multiple are fixed" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["check", "--widths=32,64,128"], "four or more spanning 8x"),
        (["check", "--seeds=2"], "--seeds: expected a whole number of at least 3, got '2'"),
        (["check", "--threads=-1"], "--threads: expected 0 to 256, got -1"),
        (["transfer", "--low=5000", "--high=5002"], "expected -126 <= --low <= --high <= 127"),
        (["transfer", "--low=-5000"], "expected -126 <= --low <= --high <= 127"),
        (["check", "--unscaled=nobody"], "no parameter's name ends in 'nobody'"),
        (["transfer", "--widths=128,256"], "three or more"),
        (["transfer", "--config=tiny.py"], "expected the family mup"),
        (["look"], "expected check or transfer"),
    ],
)
def test_misuse(words: list[str], says: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["mup", *words, *([f"--out={tmp_path}"] if words != ["look"] else [])]) == 2
    assert says in capsys.readouterr().err


# ---------------------------------------------------------------- transfer


def test_transfer_over_three_widths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "text.txt"
    corpus.write_text(text(40_000), encoding="utf-8")
    words = [
        "mup",
        "transfer",
        "--config=mup/check.py",
        "--widths=32,64,128",
        "--low=-9",
        "--high=-3",
        "--step=3",
    ]
    words += [f"--out={tmp_path / 'out'}", "model.d_head=16", "model.qk_scale=0.0625", "train.steps=24"]
    words += [f"data.path={corpus}", "data.tokenizer=bytes", f"data.cache_dir={tmp_path / 'cache'}"]
    words += ["train.batch_size=4", "eval.max_batches=2", "--threads=1", "train.threads=1"]
    assert main(words) == 0
    first = capsys.readouterr().out
    rows = {int(line.split()[0]): line.split() for line in first.splitlines() if line.split()[0].isdigit()}
    assert set(rows) == {32, 64, 128}
    losses = {width: [float(cell) for cell in row[1:4]] for width, row in rows.items()}
    for width, row in rows.items():
        argmin = f"2^{-9 + 3 * int(np.argmin(losses[width]))}"
        assert row[4] == argmin and row[5] == ("yes" if argmin == rows[32][4] else "no")
    # Among rates far too small for any width the largest must win, which does not depend on luck.
    assert all(min(row) < row[0] - 0.1 for row in losses.values())
    assert f"optim.lr={2.0 ** int(rows[32][4][2:]):g}" in first and "model.d_model=512" in first
    assert (tmp_path / "out" / "transfer.svg").read_text().count("<polyline") == 3
    saved = json.loads((tmp_path / "out" / "transfer.json").read_text())
    assert [row["width"] for row in saved["rows"]] == [32, 64, 128]
    again = main(words)
    second = capsys.readouterr().out
    assert again == 0 and second.count("(done before)") == 9
    assert second.splitlines()[-8:] == first.splitlines()[-8:]
    (tmp_path / "out" / "w32-a-9" / "done.txt").write_text("other 1.0\n")
    assert main(words) == 2


def test_trained_steps_are_those_of_the_trainer(tmp_path: Path) -> None:
    """The large command trains at exactly the rate in the table: rate, rule and width reach every update."""
    config = load_config("mup/check.py", ["model.d_model=64", "optim.lr=0.01"])
    shape = dataclasses.replace(config.model, vocab_size=11, max_seq_len=32)
    model = Model(shape, seed=1)
    before = {name: np.array(value) for name, value in model.parameters.items()}
    batch = {
        "inputs": np.arange(256).reshape(8, 32) % 11,
        "targets": (np.arange(256).reshape(8, 32) + 1) % 11,
    }
    quiet = dataclasses.replace(config, optim=dataclasses.replace(config.optim, warmup_steps=0))
    mc.Trainer(quiet, model=model).step({name: ids.astype(np.int32) for name, ids in batch.items()})
    for name, rate in (
        ("embed", 0.01),
        ("blocks.0.attn.q.w", 0.005),
        ("blocks.1.ffn.down.w", 0.005),
        ("head", 0.005),
    ):
        moved = np.abs(model.parameters[name] - before[name])
        assert moved.max() == pytest.approx(rate, rel=0.02), (
            name
        )  # Adam's first step is its rate if eps is small
