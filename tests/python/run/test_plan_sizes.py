"""A plan works for every config of any size: it allocates no model memory, and a planned model cannot run."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from mudd_core import _core
from mudd_core.config.foreign import ALIASES
from mudd_core.engine import memory
from mudd_core.engine.flops import matrix_weights
from mudd_core.engine.model_shape import expected_vocabulary, resolved_model
from mudd_core.run.build.plan_report import planned
from mudd_core.run.build.planned_model import plan_model
from mudd_core.run.store.run_folder import RunFolder
from places import ROOT

CONFIGS = ROOT / "configs"
FILES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.py"))


@pytest.mark.parametrize("name", FILES)
def test_every_config_plans_without_memory(name: str) -> None:
    config = mc.load_config(name)
    before, start = memory.resident_bytes(), time.process_time()
    shape = resolved_model(config, expected_vocabulary(config))
    model, _, report = plan_model(shape, config, only=True)
    assert report["weights"] >= 4 * model.n_parameters >= 4 * matrix_weights(shape, shape.vocab_size) // 2
    assert report["arena"] > 0 and report["gradients"] >= report["weights"] // 2
    assert memory.resident_bytes() - before < 400 * memory.MIB
    assert time.process_time() - start < 20


# Parameter counts from the shapes in docs/maths/muddformer.md, 3.4.
COUNTS = {
    "llama2_medium": 411_616_256,
    "mudd_llama2_medium": 414_095_429,
    "405m": 414_020_677,
    "405m_moe": 1_867_740_229,
    "834m": 838_022_725,
    "1_4b": 1_425_602_629,
    "2_8b": 2_804_871_709,
    "6_9b": 6_903_560_221,
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_sizes_have_their_number_of_parameters(name: str) -> None:
    shape = mc.load_config(f"muddformer/{name}.py").model
    page = (CONFIGS.parent / "docs/maths/muddformer.md").read_text()
    assert f"| {COUNTS[name]:,} |" in page
    assert mc.Model(shape, booked_only=True).n_parameters == COUNTS[name]


def test_inner_widths_of_the_medium_model() -> None:
    model = mc.load_config("MUDDLlama2Medium").model
    assert isinstance(model, mc.config.MUDDFormerConfig)
    widths = [model.ffn_width(n) for n in range(24)]
    assert widths[:2] == [1408, 1536] and widths[11] == widths[12] == 2816 and widths[-1] == 4224
    assert sum(widths) == 24 * 2816
    big = mc.load_config("muddformer/1_4b").model
    assert isinstance(big, mc.config.MUDDFormerConfig)
    assert (big.ffn_width(0), big.ffn_width(23)) == (2816, 8192)
    small = mc.config.MUDDFormerConfig(d_ff=384, n_layer=4)
    assert [small.ffn_width(n) for n in range(4)] == [256, 256, 384, 512]
    hidden = [model.generator_width(n) for n in range(24)]
    assert hidden == [64] * 14 + [128] * 10
    assert [mc.load_config("muddformer/2_8b").model.generator_width(n) for n in (13, 14, 29, 30, 31)] == [  # type: ignore[union-attr]
        64,
        128,
        128,
        192,
        192,
    ]


@pytest.mark.parametrize("name", ALIASES)
def test_names_of_the_originals_are_configs(name: str) -> None:
    theirs, ours = mc.load_config(name), mc.load_config(ALIASES[name])
    if name.startswith("mu_transformer/"):  # its grammar sets the name and the logs of the run
        assert (theirs.model, theirs.optim, theirs.data) == (ours.model, ours.optim, ours.data)
    else:
        assert theirs == ours


def test_a_plan_that_does_not_fit_is_still_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: (24 << 30, "free memory"))
    text = planned(mc.load_config("muddformer/6_9b.py"), RunFolder(Path("runs/none"))).text
    assert "parameters    6,903,560,221" in text and "at the peak" in text
    assert "DOES NOT FIT" in text and "smaller model" in text and "ZFLOP in all" in text and " years" in text


@pytest.mark.parametrize(("precision", "rate"), [("fp32", 3.0), ("bf16", 7.0)])
def test_a_plan_counts_with_the_units_of_its_precision(
    precision: str, rate: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_core, "peak_gflops", lambda threads, tries=20: 3.0)
    monkeypatch.setattr(_core, "bf16_peak_gflops", lambda threads, tries=20: 7.0)
    text = planned(mc.load_config("tiny.py", [f"train.precision={precision}"]), RunFolder(tmp_path)).text
    assert f"from {rate:.0f} GFLOP/s" in text


def test_a_plan_reads_a_tokenizer_but_no_text(tmp_path: Path) -> None:
    tokenizer = tmp_path / "tokenizer.json"
    vocab = {"a": 0, "b": 1, "</s>": 70}
    tokenizer.write_text(
        json.dumps({"model": {"type": "BPE", "vocab": vocab, "merges": []}, "added_tokens": []})
    )
    words = [f"data.tokenizer={tokenizer}", f"data.cache_dir={tmp_path / 'cache'}", "data.path=nowhere"]
    assert expected_vocabulary(mc.load_config("tiny.py", words)) == 71
    assert list(tmp_path.iterdir()) == [tokenizer]


def test_a_booked_model_refuses_to_run() -> None:
    shape = mc.config.MUDDFormerConfig(vocab_size=61, max_seq_len=8, d_model=16, n_layer=2)
    model = mc.Model(shape, booked_only=True)
    for call in (
        lambda: model.logits([1, 2]),
        lambda: model.parameters,
        lambda: model.set_parameter("final_norm.gain", np.ones(16, np.float32)),
        lambda: model.store.initialize(0),
        lambda: model.plan("logits", 1, 2).executor.run(),
    ):
        with pytest.raises(ValueError, match="only booked"):
            call()
