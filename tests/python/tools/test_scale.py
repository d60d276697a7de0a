"""launch.py scale: its formulas, its errors, and the tables in docs/scale.md."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core.cli import main
from mudd_core.config import mesh_of
from mudd_core.engine import memory
from mudd_core.engine.engine import Engine
from mudd_core.engine.model_shape import resolved_model
from mudd_core.run.build.plan_memory import usual_program_bytes
from mudd_core.run.build.planned_model import cut_of
from mudd_core.tools.scale import cost, models, page
from mudd_core.tools.scale.cost import axes
from mudd_core.tools.scale.meshes import layout_of
from mudd_core.tools.scale.page import tables
from places import ROOT
from rank_runs import batch_of, on_ranks

PAGE = ROOT / "docs" / "scale.md"
NET = cost.Network("a test", 1e-3, 1e9)
# 2 GFLOP per token at 1 TFLOP/s: 500 tokens need 1 s.
MODEL = cost.Training(weights=25_000_000, last=5_000_000, flops=2e9)


def test_the_page_has_the_tables_of_the_tool(capsys: pytest.CaptureFixture[str]) -> None:
    begin, end = "<!-- launch.py scale --tables -->", "<!-- end of the tables -->"
    assert PAGE.read_text().split(begin)[1].split(end)[0].strip() == tables()
    assert main(["scale", "--tables"]) == 0
    assert capsys.readouterr().out.strip() == tables()


def test_a_step_is_computation_and_what_it_does_not_cover() -> None:
    alone = cost.step(MODEL, 500, 1e12, NET, 1)
    assert (alone.seconds, alone.exposed) == (1.0, 0.0)
    two = cost.step(MODEL, 500, 1e12, NET, 2)
    # 100 MB at 1 GB/s, half of which stays local: 50 ms, plus a round of 1 ms; the table is a fifth of it.
    assert two.sums == two.gather == pytest.approx(0.051)
    # An upper bound in seconds.
    assert two.exposed == pytest.approx(0.011 + 0.011 + two.totals) and two.totals < 0.0011
    many = cost.step(MODEL, 500, 1e12, NET, 1024)
    assert many.sums == pytest.approx(0.1 * 1023 / 1024 + 0.010)
    # Short computations hide little: a tenth of the tokens, and only the last of four runs.
    short = cost.step(cost.Training(25_000_000, 5_000_000, 2e9, runs=4), 50, 1e12, NET, 2)
    assert short.exposed == pytest.approx(0.102 - 0.1 / 4 + short.totals)


def test_gradients_in_bf16_take_half_of_their_time() -> None:
    fp32, bf16 = (cost.step(MODEL, 500, 1e12, NET, 2, cost.Layout(gradient=width)) for width in (4, 2))
    assert bf16.sums == pytest.approx(0.026) and bf16.gather == fp32.gather
    # The table's gradient, a fifth of the bytes, is sent last: 10 ms in fp32.
    assert fp32.exposed - bf16.exposed == pytest.approx(0.005)
    least = [cost.least_tokens(MODEL, 1e12, NET, cost.Layout(gradient=width)) for width in (4, 2)]
    assert least[1] == pytest.approx(least[0] * 6 / 8)


def test_least_tokens_make_the_ratio_that_hides() -> None:
    least = cost.least_tokens(MODEL, 1e12, NET)
    assert cost.ratio(MODEL, least, 1e12, NET) == pytest.approx(cost.HIDDEN_UP_TO)
    assert least == pytest.approx(8 * 25e6 / 1e9 * 1e12 / 2e9 / 0.6)


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_bytes_between_nodes_are_those_of_a_step(form: str) -> None:
    sizes = ["model.n_layer=1", "model.vocab_size=512", "train.seq_len=16"]
    words = ["train.threads=1", *sizes, f"mesh.wire={form}"]
    config = mc.load_config("tiny.py", words)
    config = dataclasses.replace(config, model=resolved_model(config, 512))
    nodes = 4

    def work(comm: Any) -> dict[str, tuple[int, int]]:
        engine = Engine(config, mc.Model(config.model, comm=comm))
        engine.train_step(0, 1e-3, batch_of(config, 0))
        return comm.counters()  # type: ignore[no-any-return]

    weights = models.training_of(config, config.model).weights
    table = 512 * config.model.d_model  # of the table's gradient only rows that some sample read are sent
    rows = config.train.batch_size // nodes * 16 * config.model.d_model  # an upper bound per rank
    found = on_ranks(work, nodes, 1)
    sent = {purpose: sum(counters[purpose][1] for counters in found) for purpose in ("sum", "gather")}
    width = config.mesh.gradient_bytes
    each = (nodes - 1) * 4  # for such a small model the owners' parts are not quite equal
    assert sent["gather"] == pytest.approx(each * weights, rel=0.02)
    least, most = (
        (nodes - 1) * width * (weights - table),
        (nodes - 1) * width * (weights - table + nodes * rows),
    )
    dense = cost.wire(cost.Training(weights, table, 1.0), 1, nodes, layout_of(config.mesh, 1))
    assert nodes * dense.sums == (nodes - 1) * width * weights and nodes * dense.gathers == each * weights
    assert 0.98 * least < sent["sum"] < min(1.02 * most, nodes * dense.sums)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("zero", "expert", "nodes"), [(3, 1, 2), (3, 1, 4), (1, 2, 2), (1, 2, 4), (1, 4, 4), (3, 2, 2), (3, 2, 4)]
)
def test_bytes_of_each_axis_are_those_of_the_formula(
    zero: int, expert: int, nodes: int, precision: str
) -> None:
    # Each token selects all experts, so a rank sends the same rows for any router output.
    sizes = ["model.d_model=64", "model.n_head=4", "model.n_kv_head=2", "model.d_ff=128", "model.n_layer=3"]
    words = [*sizes, "model.top_k=8", "model.vocab_size=512", "train.seq_len=16", "train.batch_size=8"]
    mesh = [f"mesh.zero={zero}", f"mesh.expert={expert}", "train.threads=1", f"train.precision={precision}"]
    config = mc.load_config(
        "mixtral/tiny.py", [*words, *mesh, *(["train.micro_batch_size=1"] if zero == 3 else [])]
    )
    config = dataclasses.replace(config, model=resolved_model(config, 512))

    def work(comm: Any) -> dict[str, tuple[int, int]]:
        group = comm.expert_group(expert) if expert > 1 else None
        cut = cut_of(config.model, config, comm)
        engine = Engine(
            config, mc.Model(config.model, comm=comm, precision=precision, experts=group, cut=cut)
        )
        engine.train_step(0, 1e-3, batch_of(config, 0))
        before = comm.counters()
        engine.train_step(1, 1e-3, batch_of(config, 1))
        return {purpose: sent[1] - before[purpose][1] for purpose, sent in comm.counters().items()}

    found = on_ranks(work, nodes, 1)
    sent = {purpose: sum(counters[purpose] for counters in found) for purpose in found[0]}
    runs = 8 // nodes if zero == 3 else 1
    training = dataclasses.replace(models.training_of(config, config.model), runs=runs)
    wanted = cost.wire(training, 8 * 16 / nodes, nodes, cost.Layout(zero, expert))
    table = 4 * 512 * 64 * runs * (nodes - 1)  # of the table's gradient only rows that were read are sent
    assert sent["exchange"] == pytest.approx(nodes * wanted.exchange, rel=0.02)
    assert sent["gather"] == pytest.approx(nodes * wanted.gathers, rel=0.02)
    assert 0.98 * (nodes * wanted.sums - table) <= sent["sum"] <= 1.02 * nodes * wanted.sums


def test_experts_and_cut_weights_wait_for_their_messages() -> None:
    dense = cost.Training(25_000_000, 5_000_000, 2e9, passes=(1e8, 8e7), layers=10)
    cut = cost.step(dense, 500, 1e12, NET, 2, cost.Layout(3))
    # Forward takes a third of a second and hides 50 ms of gathers, except for the table's. Backward takes 667 ms and
    # hides 40 + 50 ms.
    assert cut.exposed == pytest.approx(0.011 + 0.011 + cut.totals) and cut.gather == pytest.approx(
        0.09 + 0.024
    )
    few = cost.step(dense, 5, 1e12, NET, 2, cost.Layout(3))
    assert few.exposed == pytest.approx(cut.gather + cut.sums - 0.01 + few.totals)
    experts = cost.Training(25_000_000, 5_000_000, 2e9, experts=20_000_000, rows=4e5, layers=10)
    away = cost.step(experts, 500, 1e12, NET, 4, cost.Layout(1, 4))
    assert away.exchange == pytest.approx(4e5 * 500 * 0.75 / 1e9 + 50e-3)
    assert away.sums == pytest.approx(
        0.002 + 0.02 * 0.75
    )  # nothing for experts, because no other rank has them
    home = cost.step(experts, 500, 1e12, NET, 4, cost.Layout(1, 4, ranks=4))
    assert home.exchange == 0 and home.sums == pytest.approx(0.002 + 0.1 * 0.75)


def test_the_usual_program_is_the_one_of_a_plan(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "launch.py"), "--config=tiny.py", "--plan", "--workdir=none"]
    text = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    found = re.search(r"([\d.]+) MiB  program", text)
    # The usual size of the program is a rule of thumb.
    assert found and float(found[1]) * memory.MIB == pytest.approx(usual_program_bytes(1), rel=0.2)


def test_meshes_are_ranked_and_the_best_is_a_command_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scale", "--config=tiny.py", "--nodes=4", "--net=1g", "--flops=1e11", "model.n_layer=24"]
    assert main(words) == 0
    text = capsys.readouterr().out
    table = [line.split()[0] for line in text.splitlines() if line.startswith("  mesh.zero")]
    assert table == ["mesh.zero=1", "mesh.zero=3"]
    assert "--config=tiny.py model.n_layer=24 mesh.zero=1 --ranks=4 --hosts=$HOSTS" in text
    assert main([*words, "--memory=0.161"]) == 0
    text = capsys.readouterr().out
    assert "mesh.zero=3 --ranks=4 --hosts=$HOSTS" in text and "more than 164.9 MiB a node" in text
    line = shlex.split(
        next(line for line in text.splitlines() if "$HOSTS" in line).replace("$HOSTS", "a,b,c,d")
    )
    assert main([*line[line.index("--config=tiny.py") :], "--plan", "--workdir=none"]) == 0
    assert "mesh.zero=3" in capsys.readouterr().out
    assert main([*words, "--memory=0.01", "--net=1 Gb/s"]) == 0
    assert "no mesh fits: use more nodes" in capsys.readouterr().out


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_mesh_needs_what_the_plan_says(
    ranks: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        memory, "resident_bytes", lambda: 46 * memory.MIB
    )  # without the memory of the pytest process
    monkeypatch.setattr(memory, "file_bytes", lambda: 20 * memory.MIB)

    def needs(*words: str) -> dict[str, list[str]]:
        assert main([*words, "--config=tiny.py"]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if re.match(r" +mesh\.", line)]
        return {
            name: [cells[i - 1] for i, cell in enumerate(cells) if cell == "MiB"] for name, *cells in lines
        }

    found = needs("scale", "--nodes=2", f"--ranks-per-node={ranks}", "--net=1g", "--flops=1e11")
    assert found == needs(
        "--plan", "--workdir=none", f"--ranks={2 * ranks}", "--hosts=a,b", "--node-memory=4"
    )
    node = float(found["mesh.zero=1"][1])
    for short in (0.1, -0.1):
        memory_of_node = f"--memory={(node - short) / 1024}"
        needs_words = ("--nodes=2", f"--ranks-per-node={ranks}", "--net=1g", "--flops=1e11", memory_of_node)
        assert main(["scale", "--config=tiny.py", *needs_words]) == 0
        row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("  mesh.zero=1"))
        assert ("more than" in row) == (short > 0)


@pytest.mark.parametrize(
    ("words", "rows", "best"),
    [
        # Few nodes do not have this mesh: those entries are omitted, and the mesh is printed once.
        (
            ("mixtral/tiny.py", "--nodes=4", "mesh.zero=3", "mesh.expert=4"),
            ["4"],
            "mixtral/tiny.py mesh.zero=1 mesh.expert=1 --ranks=4",
        ),
        (("tiny.py", "--nodes=4", "mesh.data=2"), ["2", "4"], "tiny.py mesh.zero=1 --ranks=4"),
        (
            ("tiny.py", "--nodes=12", "mesh.any_world=true", "train.micro_batch_size=0"),
            ["1", "2", "4", "8", "12"],
            "mesh.zero=1 train.batch_size=12 train.logical_shards=16 --ranks=12",
        ),
    ],
)
def test_any_mesh_of_all_the_nodes_is_ranked(
    words: tuple[str, ...], rows: list[str], best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", f"--config={words[0]}", *words[1:], "--flops=1e8", "--net=25GbE"]) == 0
    text = capsys.readouterr().out
    table = text.split("sequences")[1].split("best:")[0].splitlines()
    assert [line.split()[0] for line in table if line[:6].strip().isdigit()] == rows
    assert f"--config={best}" in text or best in text, text


def test_each_family_says_which_axes_it_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "--axes"]) == 0
    text = capsys.readouterr().out.strip()
    begin, end = "<!-- launch.py scale --axes -->", "<!-- end of the axes -->"
    assert PAGE.read_text().split(begin)[1].split(end)[0].strip() == text
    way_out = "use mesh.expert=1 mesh.fsdp=-1 |"
    assert (
        f"| Transformer++, muP, GPT-2, TokenFormer | built | built | refused: no experts; {way_out}" in text
    )
    assert f"| MUDDFormer | built | built | refused: no experts; set model.n_expert, or {way_out}" in text
    assert "| Mixtral, MUDDFormer with experts | built | built | built | built | " in text


REFUSED = [(family, config, axis) for family, config in page.FAMILIES for axis in page.AXES]


@pytest.mark.parametrize(
    ("family", "config", "axis"), [one for one in REFUSED if page.cell(*one[1:]) != "built"]
)
def test_a_refused_axis_ends_with_2_and_names_a_mesh_that_works(
    family: str, config: str, axis: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--config={config}", f"--workdir={tmp_path / 'run'}", *page.AXES[axis]]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "[mesh] " in said and not list(tmp_path.iterdir())
    before, _, rest = said.partition(" use ")
    assert before.endswith((";", "; set model.n_expert, or"))
    way_out = rest.split()
    assert (
        way_out[0].startswith("mesh.")
        and mesh_of(mc.load_config(config, [*words[2:], *way_out]), 2).world == 2
    )


def test_experts_at_home_pay_and_tensor_does_not() -> None:
    config = mc.load_config("mixtral/mixtral87.py")
    shape = models.shape_of(config, resolved_model(config, 32000))
    rows = {row.name: row for row in axes(shape, 8000, 4e12, cost.Network("", 0, 1.1e9))}
    assert rows["expert 8"].ratio < 0.6 < rows["data, zero 1"].ratio
    assert not rows["tensor 4"].hidden and rows["tensor 4"].ratio > rows["expert 8"].ratio


def test_the_experts_of_a_muddformer_are_on_the_expert_axis() -> None:
    config = mc.load_config("muddformer/405m_moe.py")
    shape = models.shape_of(config, config.model)
    assert (shape.experts, shape.chosen) == (24 * 16 * 3 * 1024 * 1408, 2)
    dense = mc.load_config("muddformer/405m.py")
    assert models.shape_of(dense, dense.model).experts == 0


def test_a_report_tells_step_memory_mesh_and_its_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"step": step, "tokens_per_second": rate} for step, rate in ((1, 1.0), (2, 100.0), (3, 5000.0))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["scale", "--config=tiny.py", f"--workdir={tmp_path}", "--nodes=16", "--net=1g"]
    assert main([*words, "--ranks-per-node=2"]) == 0
    text = capsys.readouterr().out
    assert "16 nodes of 2 ranks, 1 Gb/s" in text and "the median of 3 rows" in text
    numbers = [line.split() for line in text.split("sequences")[1].splitlines() if line[:6].strip().isdigit()]
    assert [row[0] for row in numbers] == ["1", "2", "4", "8", "16"] and numbers[-1][1] == "32"
    # 8 sequences of 128 tokens at 100 tokens per second.
    assert float(numbers[0][2]) == pytest.approx(8 * 128 / 100, rel=1e-3)
    assert "data 1 x fsdp 32, zero 1" in text and "tensor 4" in text and "not built" in text
    assert "the config has 8 sequences" in text and "no stragglers" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl"]


def test_a_measured_network_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "commbench.json"
    file.write_text(json.dumps({"between_nodes": {"latency": 5e-6, "bandwidth": 3e9}}))
    for net in (file, tmp_path):
        assert main(["scale", "--config=tiny.py", "--flops=1e11", "--nodes=2", f"--net={net}"]) == 0
        assert "5 us, 3 GB/s a node" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--config is missing; type: python3 launch.py scale --config=small.py"),
        (
            ("--config=tiny.py", "--flops=1e9", "--step-seconds=1"),
            "--flops and --step-seconds: expected only one",
        ),
        (
            ("--config=tiny.py", "--workdir=no_such_run"),
            "expected a run with a measured speed in its metrics",
        ),
        (("--config=tiny.py", "--flops=1e9", "--net=7g"), "--net: expected 1g, 10g, 25g, 100g or a file"),
        (("--config=tiny.py", "--flops=1e9", "--nodes=6"), "6 x 1 = 6 ranks divide no number of"),
        (("--config=tiny.py", "--flops=1e9", "--nodes=6"), "use 4 or 8 ranks, or set mesh.any_world=true"),
        (("--config=tiny.py", "--flops=1e9", "--net=25GB"), "--net: expected 1g"),  # bytes
        (("--config=tiny.py", "--flops=0"), "--flops"),
        (("--config=tiny.py", "--flops=1e9", "--nodes=1024", "--ranks-per-node=2"), "at most 1024 ranks"),
        (("--config=tiny.py", "--flops=1e9", "--nods=2"), "--nodes"),
    ],
)
def test_what_cannot_be_predicted_is_refused(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scale", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected a file of commbench"),
        ('{"between_nodes": null}', "measured on one node"),
        ('{"between_nodes": {"latency": 1e-6, "bandwidth": 0}}', "a bandwidth in bytes a second"),
    ],
)
def test_a_file_that_commbench_did_not_write_is_refused(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.json"
    file.write_text(text)
    assert main(["scale", "--config=tiny.py", "--flops=1e9", f"--net={file}"]) == 2
    assert message in capsys.readouterr().err
