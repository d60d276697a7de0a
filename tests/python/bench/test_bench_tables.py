"""The pages of bench/tables.py: they show the measurements; a baseline that took other steps has no ratio."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from places import ROOT

sys.path[:0] = [str(ROOT / "bench")]

import bench_baselines  # noqa: E402
import bench_startup  # noqa: E402
import plot_speed  # noqa: E402
import shapes  # noqa: E402
import tables_page  # noqa: E402
import tables_summary  # noqa: E402
from mudd_core import _core  # noqa: E402

CONDITIONS = {"commit": "abc1234", "date": "2026-01-02 03:04", "cap": "avx2", "threads": 2, "quick": False}


def step(
    program: str, speed: float, *, family: str = "gpt2", shape: str = "9M", other: str = ""
) -> dict[str, Any]:
    named = {"program": program, "name": program, "family": family, "shape": shape, "precision": "fp32"}
    metrics = {"tokens_per_second": speed, "peak_rss_mib": 200.0 if program == "ours" else 400.0}
    more = {
        "share_of_peak": 0.75,
        "isa": "avx2",
        "spread": 0.02,
        "loss_difference": 1e-6,
        "other_steps": other,
    }
    return {**named, **metrics, **more, "rounds": 3, "steps": 20, "warmup": 5, **CONDITIONS}


def test_every_instruction_set_level_has_its_name_on_the_pages() -> None:
    assert set(tables_page.UNITS) >= {*_core.isa_levels(), "neon"}


def test_a_machine_with_arm_has_its_own_files_and_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nFeatures\t: fp asimd crc32 bf16\nCPU part\t: 0xd4f\n\n"
    )
    monkeypatch.setattr(shapes, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(shapes.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(_core, "cpu_name", lambda: "ARM Neoverse-V2")
    monkeypatch.setenv("MUDD_MAX_ISA", "neon")
    assert shapes.cpu_name() == "ARM Neoverse-V2" and shapes.cpu_levels() == ["asimd", "bf16"]
    assert tables_page.slug(shapes.cpu_name()) == "arm_neoverse_v2" and shapes.baseline_caps() == {}
    rows = [row | {"isa": "neon"} for row in (step("ours", 3000), step("compile", 2000))]
    text = tables_summary.headline([kept(*rows) | {"cpu": shapes.cpu_name()}])
    assert "| ARM Neoverse-V2 | fp32, NEON | 9M | 1 | 1.50 |" in text


def kept(*rows: dict[str, Any]) -> dict[str, Any]:
    steps = {f"{r['shape']} {r['family']} {r['program']}": r for r in rows}
    return {"cpu": "Some CPU (R)", "cores": 2, "steps": steps}


def test_ratios_are_to_the_better_of_the_baselines_that_took_our_steps() -> None:
    rows = [step("ours", 3000), step("eager", 2000), step("compile", 2500), step("jax", 1500)]
    text = tables_summary.summary(kept(*rows))
    assert "| GPT-2 | 9M | fp32, AVX2 | 3,000 | 20 | 2% | 75% | 1.20 (compile) | 2.00 | 50% |" in text
    rows[2]["other_steps"] = "loss differs by nan"
    assert "| 1.50 (eager) | 2.00 | 50% |" in tables_summary.summary(kept(*rows))
    page = tables_page.page(kept(*rows))
    assert (
        "loss differs by nan" in page and "commit abc1234, 2026-01-02" in page and "MUDD_MAX_ISA=avx2" in page
    )


def test_bf16_counts_against_its_own_units_or_not_at_all() -> None:
    old = step("ours", 1000) | {"precision": "bf16", "isa": "amx_bf16", "share_of_peak": 1.55}
    assert tables_page.share(old) == ""
    row = old | {"peak_gflops": 100.0, "peak_unit_gflops": 1600.0}
    row["tokens_per_second"] = 1e9 * 80.0 / bench_baselines.SHAPES["9M"].flops_per_token("gpt2")
    found = bench_baselines.shares_of_peak(row)
    assert found["share_of_peak"] == pytest.approx(0.8)
    assert tables_page.share(row | found) == "5%" and "155%" not in tables_page.page(kept(old))


def test_the_headline_has_the_lowest_and_the_highest_ratio() -> None:
    rows = [step("ours", 3000), step("eager", 2000), step("ours", 2000, family="mup")]
    rows += [step("eager", 1000, family="mup"), step("ours", 100, shape="55M"), step("jax", 50, shape="55M")]
    assert "Some CPU" not in tables_summary.headline([kept(*rows)])  # no compiled baselines
    text = tables_summary.headline([kept(*rows, step("compile", 1500))])
    assert "| Some CPU (R) | fp32, AVX2 | 9M, 55M | 2 | 1.50 to 2.00 | 2.00 | 50% |" in text


def test_a_page_names_the_versions_of_its_baselines() -> None:
    rows = [step("ours", 3000), step("eager", 2000) | {"name": "PyTorch 2.11.0+cpu eager"}]
    assert "| over PyTorch 2.11 |" in tables_summary.summary(kept(*rows))


def test_the_written_pages_are_those_of_the_kept_rows() -> None:
    files = sorted((ROOT / "bench" / "results").glob("tables_*.json"))
    machines = [json.loads(file.read_text()) for file in files]
    assert tables_summary.headline(machines) in (ROOT / "README.md").read_text()
    fp32 = [
        programs for m in machines for ours, programs in tables_page.cases(m) if ours["precision"] == "fp32"
    ]
    claimed = tables_summary.span([tables_page.over_better(programs) for programs in fp32])
    assert f"in fp32 is {claimed} times as fast" in (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "performance.md").read_text()
    assert all(tables_summary.summary(machine) in page for machine in machines)
    for file, machine in zip(files, machines, strict=True):
        assert file.with_suffix(".md").read_text() == tables_page.page(machine)


def test_rows_stand_by_shape_and_family() -> None:
    rows = [
        step("ours", 1, shape="55M"),
        step("ours", 2, family="mup"),
        step("ours", 3, family="transformer_pp"),
    ]
    found = [(ours["shape"], ours["family"]) for ours, _ in tables_page.cases(kept(*rows))]
    assert found == [("9M", "transformer_pp"), ("9M", "mup"), ("55M", "gpt2")]


def test_levels_of_one_case_stand_apart() -> None:
    rows = [step("ours", 1), step("eager", 2), step("ours", 3), step("eager", 4)]
    for row in rows[2:]:
        row |= {"cap": "none", "isa": "amx_bf16"}
    data = kept() | {"steps": {str(i): r for i, r in enumerate(rows)}}
    told = [
        (tables_page.numbers(ours), tables_page.over_better(programs))
        for ours, programs in tables_page.cases(data)
    ]
    assert told == [("fp32, AVX2", "0.50 (eager)"), ("fp32, AVX-512", "0.75 (eager)")]
    rows[2]["precision"] = "bf16"
    assert tables_page.numbers(rows[2]) == "bf16, AMX"


def test_small_tables_and_the_section_of_the_page() -> None:
    rates = {"ours": 150.0, "torch": 100.0, "ours both": 120.0, "torch both": 80.0}
    data = kept(step("ours", 3000)) | {
        "generation": {
            "9M": {
                "shape": "9M",
                "family": "gpt2",
                "tokens_per_second": 1000.0,
                "mb_per_token": 30.0,
                "read_gbps": 36.0,
                "share": 0.83,
                "prefill_tokens_per_second": 9000.0,
                **CONDITIONS,
            }
        },
        "attention": {"x": {"shape": "1, 1, 8192, 64", "peak_gflops": 200.0, "gflops": rates, **CONDITIONS}},
        "threads": {
            "55M": {"shape": "55M", "tokens_per_second": {"1": 1.0, "2": 1.9}, "speedup": 1.9, **CONDITIONS}
        },
        "startup": {"small": {"import_seconds": 0.014, "first_step_seconds": 0.4, **CONDITIONS}},
    }
    page, text = tables_page.page(data), tables_summary.summary(data)
    assert "75% | 100 | 1.50" in page and "1.90 times, bound" in page and "14 ms" in page
    assert (
        "9M 1000 (83%)" in text
        and "T = 8,192: 75% forward, 60% with backward, 1.50 times as fast as SDPA" in text
    )
    assert "1.90 times as fast as one" in text and "0.40 s after" in text
    before = (ROOT / "docs" / "performance.md").read_text()
    again = tables_summary.with_section(before, text)
    assert again.count(tables_summary.BEGIN) == 1 and text in again
    assert tables_summary.with_section(again, "new\n").count("1.90 times") == 0
    with pytest.raises(ValueError, match="marks"):
        tables_summary.with_section("nothing", text)


def test_a_cpu_has_a_file_name() -> None:
    assert tables_page.slug("AMD EPYC(TM) 9B14") == "amd_epyc_tm_9b14"


def test_the_import_is_timed() -> None:
    assert 0 < bench_startup.import_seconds() < 30


def test_the_figure_has_date_and_spread_and_says_why_a_bar_is_missing() -> None:
    rows = [
        step("ours", 3000),
        step("eager", 2000),
        step("jax", 1500),
        step("ours", 3100, family="mup"),
        step("compile", 2600, family="mup"),
    ]
    picture = plot_speed.draw(kept(*rows), "9M", "fp32, AVX2")
    assert "Measured 2026-01-02; spread:" in picture and "3,000, spread 2%" in picture
    assert picture.count("the bench has no JAX program of this family") == 1
    assert picture.count('height="12"') == 5, "a bar of a program that was not measured"
    picture = plot_speed.draw(kept(*rows[:2]), "9M", "fp32, AVX2")
    assert ">JAX not measured<" in picture
