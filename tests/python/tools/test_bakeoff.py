"""The bake-off: equal sizes, intervals, verdicts, and a short comparison from the command line, killed and resumed."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import mudd_core as mc
from bakeoff_results import result_of
from launched import launched
from mudd_core import nn
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.config import FAMILIES
from mudd_core.tools.bakeoff import Candidate, equal_flops, equal_parameters
from mudd_core.tools.bakeoff.comparison import EQUAL, PRESETS, base, comparison, cost, parameters, total_cost
from mudd_core.tools.bakeoff.result import mean_and_interval, quantile, verdict
from mudd_core.tools.bakeoff.result_page import claim, page

VOCAB = 300
SMALL = (
    "model.d_model=64",
    "model.n_layer=2",
    "train.seq_len=32",
    "train.batch_size=4",
    "eval.max_batches=2",
)


def everyone() -> list[Candidate]:
    return [Candidate(family, base(family, 4096, SMALL)) for family in FAMILIES]


def test_all_families_can_be_made_equally_large() -> None:
    evened = equal_parameters(everyone(), VOCAB)
    wanted = parameters(evened[0].config, VOCAB)
    for one in evened:
        # Widths and steps are integers.
        assert parameters(one.config, VOCAB) == pytest.approx(wanted, rel=0.05), one.name
        assert one.config.train.steps == evened[0].config.train.steps


def test_all_families_can_be_made_equally_expensive() -> None:
    start = everyone()
    evened = equal_flops(start, VOCAB)
    for before, one in zip(start, evened, strict=True):
        # Widths and steps are integers.
        assert cost(one.config, VOCAB) == pytest.approx(cost(evened[0].config, VOCAB), rel=0.03), one.name
        assert one.config.model == before.config.model


def test_a_family_of_this_process_is_a_candidate() -> None:
    @dataclass(frozen=True)
    class Plain(mc.FamilyConfig):
        pass

    def plain(config: Plain, batch: mc.Batch) -> mc.Hidden:
        return mc.Hidden(
            nn.embedding(batch.inputs, "embed", config.vocab_size, config.d_model, std=1.0),
            nn.head(config, std=1.0),
        )

    mc.register_family(Plain, plain)
    config = base("Plain", 4096, SMALL)
    assert isinstance(config.model, Plain) and config.model.d_model == 64
    assert parameters(config, VOCAB) == 2 * VOCAB * 64


def test_every_preset_makes_a_comparison() -> None:
    for preset in PRESETS:
        found = comparison(preset, ["transformer_pp", "gpt2"], "flops", 4096, SMALL, VOCAB)
        assert len(found.candidates) >= 2
    grown = comparison("tokenformer-growth", [], "flops", 12288, SMALL, VOCAB)
    costs = [total_cost(one, VOCAB) for one in grown.candidates]
    # Widths and steps are integers.
    assert costs[0] == pytest.approx(costs[1], rel=0.02) and len(grown.candidates[1].stages) == 3
    moe = comparison("moe", [], "flops", 4096, SMALL, VOCAB)
    dense, sparse = (cost(one.config, VOCAB) for one in moe.candidates)
    assert sparse == pytest.approx(dense, rel=0.03)  # the router adds a little
    for equal, name in EQUAL.items():
        title = comparison("families", ["gpt2"], equal, 4096, SMALL, VOCAB).title
        assert title == f"1 families at equal {name[0]}"
    with pytest.raises(UserError, match="gpt3"):
        comparison("families", ["gpt3"], "flops", 4096, SMALL, VOCAB)


# Two-sided 95 % quantiles of textbooks.
STUDENTS = {1: 12.7062, 2: 4.3027, 5: 2.5706, 15: 2.1314, 16: 2.1199, 30: 2.0423, 120: 1.9799, 10**6: 1.95997}


@pytest.mark.parametrize("degrees", STUDENTS)
def test_quantiles_of_students_t_have_no_last_row(degrees: int) -> None:
    # The table has few digits.
    assert quantile(0.975, degrees) == pytest.approx(STUDENTS[degrees], abs=6e-5)


def test_seventeen_seeds_have_the_interval_of_sixteen_degrees() -> None:
    values = [float(i) for i in range(17)]
    _, interval = mean_and_interval(values)
    # The published quantile has seven digits.
    assert interval == pytest.approx(2.119905 * 5.0497525 / 17**0.5, rel=1e-6)


def test_quantiles_grow_with_the_probability_and_fall_with_the_degrees() -> None:
    # float64 bisection.
    assert quantile(0.5, 7) < 1e-9
    assert quantile(0.75, 1) == pytest.approx(1.0, rel=1e-12)  # the Cauchy distribution
    found = [quantile(0.975, degrees) for degrees in range(1, 200)]
    assert found == sorted(found, reverse=True) and found[-1] > 1.9599639845


def test_experts_typed_as_overrides_are_compared() -> None:
    words = (*SMALL, "model.n_expert=4", "model.d_ff=64")
    for equal in ("parameters", "flops"):
        found = comparison("families", ["muddformer", "mixtral"], equal, 4096, words, VOCAB)
        measured = parameters if equal == "parameters" else cost
        sizes = [measured(one.config, VOCAB) for one in found.candidates]
        # Widths and steps are integers.
        assert sizes[0] == pytest.approx(sizes[1], rel=0.05)
        assert [getattr(one.config.model, "n_expert", 0) for one in found.candidates] == [4, 4]


def test_intervals_are_students() -> None:
    # By hand: deviations -1, 0, 1; s = 1; t(2) = 4.303; 4.303 / sqrt(3)
    mean, interval = mean_and_interval([1.0, 2.0, 3.0])
    # The table has few digits.
    assert mean == 2.0 and interval == pytest.approx(2.4841377, abs=1e-6)
    assert mean_and_interval([5.0]) == (5.0, None)
    assert verdict(-0.1, 0.05).startswith("better") and verdict(0.1, 0.05).startswith("worse")
    assert verdict(0.04, 0.05) == "no difference seen" and "no verdict" in verdict(-1.0, None)


@pytest.mark.parametrize(
    ("difference", "interval", "words"),
    [
        (-0.1527, 0.0381, "b is 0.15 ± 0.04 bits per byte below a at equal FLOPs"),
        (0.2, None, "b is 0.20 bits per byte above a at equal FLOPs"),
        (0.03, 0.04, "b and a do not differ at equal FLOPs (95 % interval)"),
    ],
)
def test_the_title_of_two_models_is_the_result(difference: float, interval: float | None, words: str) -> None:
    result = result_of({"a": (None, interval), "b": (difference, interval)}, "2 families at equal FLOPs")
    assert claim(result) == words
    shown = page(result)
    assert f"<h1>{words}</h1>" in shown
    # One view for each of tokens, FLOPs and seconds.
    assert shown.count('class="band') == (6 if interval is not None else 0)
    assert ("Bands: 95 % interval of 3 seeds." in shown) == (interval is not None)
    more = {"a": (None, interval), "b": (difference, interval), "c": (difference, interval)}
    assert claim(result_of(more, "3 families")) == "3 families"


def bakeoff(text: Path, out: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    data = (f"data.path={text}", f"data.cache_dir={text.parent / 'cache'}", "data.tokenizer=bytes")
    return launched(Path.cwd(), "bakeoff", f"--out={out}", *words, *SMALL, *data, **environment)


def test_a_short_comparison_is_killed_goes_on_and_is_reported(tiny_text: Path, tmp_path: Path) -> None:
    words = ("--tokens=2048", "--seeds=2", "--families=transformer_pp,gpt2", "train.threads=1")
    killed = bakeoff(tiny_text, tmp_path, *words, MUDD_KILL_AT="after_commit:11")
    assert killed.returncode == -9, killed.stdout + killed.stderr
    done = bakeoff(tiny_text, tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "transformer_pp, seed 0: 16 steps" not in done.stdout, "a finished run was started again"
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    assert [one["name"] for one in result["models"]] == ["transformer_pp", "gpt2"]
    first, second = result["models"]
    assert len(second["final"]) == 2 and len(second["curve"]) >= 8
    pairs = [b - a for a, b in zip(first["final"], second["final"], strict=True)]
    assert second["difference"] == pytest.approx(sum(pairs) / 2)
    assert first["curve"][-1]["mean"] < first["curve"][0]["mean"], "nothing was learned"
    shown = (tmp_path / "result.html").read_text()
    assert shown.count("<svg") == 3
    for part in shown.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")


def test_growth_continues_where_the_smaller_model_ended(tiny_text: Path, tmp_path: Path) -> None:
    words = ("--preset=tokenformer-growth", "--tokens=3072", "--seeds=1", "train.threads=1")
    done = bakeoff(tiny_text, tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    scratch, grown = json.loads((tmp_path / "result.json").read_text())["models"]
    # Widths and steps are integers.
    assert grown["training_flops"] == pytest.approx(scratch["training_flops"], rel=0.07)
    assert grown["parameters"] == scratch["parameters"]
    flops = [point["flops"] for point in grown["curve"]]
    assert flops == sorted(flops) and flops[-1] == pytest.approx(grown["training_flops"])
    assert "one seed" in grown["verdict"]
    # The second stage starts with the weights of the first, so its loss is lower than a new model's.
    per_stage = len(grown["curve"]) // 3
    assert grown["curve"][per_stage]["mean"] < grown["curve"][0]["mean"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--seeds=0",), "--seeds"), (("--families=gpt3",), "gpt3"), (("modle.d_model=8",), "model.d_model")],
)
def test_mistakes_exit_2(tiny_text: Path, tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = bakeoff(tiny_text, tmp_path / "out", *words)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()


def test_steps_are_set_by_tokens_alone() -> None:
    with pytest.raises(
        UserError, match=r"\[bakeoff\] train\.steps: expected --tokens=N, .* got train\.steps=4"
    ):
        base("gpt2", 4096, [*SMALL, "train.steps=4"])


@pytest.mark.parametrize("tokens", ["-1", "0", "1.5", "nan", "inf", "1e400", "many"])
def test_tokens_that_are_no_number(tokens: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bakeoff", f"--tokens={tokens}", f"--out={tmp_path / 'out'}"]) == 2
    assert "--tokens: expected a whole number from 1 to" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
