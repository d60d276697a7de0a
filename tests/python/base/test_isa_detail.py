"""mc.isa(detail=True): the kernel of each op and optimizer at the level of this process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mudd_core as mc
from level_workers import levels
from mudd_core import _core
from places import ROOT

OPS = ROOT / "cpp" / "mudd" / "ops"
UNITS = ("avx512_bf16", "amx_bf16")  # levels at which only GEMM and attention have kernels, in bf16
GEMM = re.compile(r'#include "mudd/(kernels/gemm/(?!reference)|graph/(right_operand|sink_gradient)\.h")')
PROGRAM = "import json, mudd_core; print(json.dumps([mudd_core.isa(), mudd_core.isa(detail=True)]))"


def at_level(level: str) -> tuple[str, dict[str, dict[str, str]]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MUDD_")}
    environment["MUDD_MAX_ISA"] = level
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    name, rows = json.loads(done.stdout)
    return name, rows


def test_every_op_and_optimizer_is_there() -> None:
    detail = mc.isa(detail=True)
    names = {spec.name for spec in _core.op_specs()} | {spec.name for spec in _core.optimizer_specs()}
    assert set(detail) == names
    assert mc.isa(detail=False) == mc.isa() == _core.isa()
    assert {name for name, rows in detail.items() if not rows} == {"moe_balance"}
    assert set(detail["linear"]) == {"linear_f32", "activation_f32", "gemm_f32", "gemm_bf16"}
    assert set(detail["muon"]) == {"gemm_f32"} and set(detail["adamw"]) == {"adamw_f32"}
    with pytest.raises(TypeError):
        mc.isa(detail=1)  # type: ignore[call-overload]


@pytest.mark.parametrize("level", levels())
def test_rows_are_the_best_of_the_level(level: str) -> None:
    found, detail = at_level(level)
    assert found == level
    plain = "avx512" if level in UNITS else level
    for op, rows in detail.items():
        for kernel, used in rows.items():
            has_unit = kernel in ("gemm_bf16", "attention_bf16")
            assert used == (level if has_unit else plain), (op, kernel)
    assert ("attention_bf16" in detail["attention"]) == (level in UNITS)


def declared(op: str) -> set[str]:
    return {kernel.rpartition("_")[0] for kernel in mc.isa(detail=True)[op]}


def sources(folder: Path) -> str:
    files = (file for file in sorted(folder.iterdir()) if file.suffix in (".cc", ".h"))
    return "".join(file.read_text() for file in files if file.name != "reference.h")


@pytest.mark.parametrize("op", sorted(folder.name for folder in OPS.iterdir()))
def test_an_op_declares_the_kernels_that_its_sources_choose(op: str) -> None:
    text = sources(OPS / op)
    chosen = set(re.findall(r"choose\((\w+)_rows\(", text))
    if "linear/pre_gradient.h" in text:  # a function that chooses a row for several ops
        chosen.add("linear")
    if "cross_entropy/node.h" in text:  # the class of the node's base
        chosen.add("cross_entropy")
    if "graph/table_sink.h" in text:
        chosen.add("table_gradient")
    if GEMM.search(text):
        chosen.add("gemm")
    assert declared(op) == chosen
