"""Every limit of a mesh: a start rejects the config, nothing is written, and docs/parallel.md lists the limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
from mudd_core import dist
from mudd_core.base.errors import ReportedElsewhereError, UserError
from mudd_core.config import MixtralConfig, ModelConfig, TokenFormerConfig, TransformerPPConfig
from mudd_core.config.mesh import (
    CUT_MEASURES,
    CUT_SLOTS,
    EXPERT_MEASURES,
    LIMITS,
    PISSA,
    Limit,
)
from places import ROOT
from rank_runs import config_of, on_ranks

DENSE = TransformerPPConfig(d_model=32, n_layer=1, n_head=2, d_ff=64)
SLOTS = TokenFormerConfig(d_model=32, n_layer=1, n_head=2, slot_num=8)
EXPERTS = MixtralConfig(d_model=64, n_layer=1, n_head=4, n_kv_head=2, d_ff=64, n_expert=4)
# The model and fields of a run of two ranks, one per node. Without the fields in the third column it trains.
ASKED: dict[Limit, tuple[ModelConfig, dict[str, Any], dict[str, Any]]] = {
    PISSA: (DENSE, {"mesh.zero": 3, "tune.method": "lora"}, {"lora.init": "pissa"}),
    CUT_MEASURES: (DENSE, {"mesh.zero": 3}, {"log.weights": True}),
    CUT_SLOTS: (SLOTS, {"mesh.zero": 3}, {"model.slot_num": 12}),
    EXPERT_MEASURES: (EXPERTS, {"mesh.expert": 2}, {"log.activations": True}),
}


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.asked)
def test_what_a_mesh_refuses_ends_with_2_before_anything_is_written(
    limit: Limit, tiny_text: Path, tmp_path: Path
) -> None:
    (model, fields, refused), new = ASKED[limit], tmp_path / "new"
    small = {"model": model, "train.seq_len": 16, "train.steps": 1, "train.save_every": 1}
    with mc.Trainer(config_of(tiny_text, **small), tmp_path / "old") as trainer:
        trainer.fit(progress=False)
    if limit in (PISSA, CUT_SLOTS):
        small["start.load_parameters_path"] = str(tmp_path / "old")

    def start(**more: Any) -> list[str]:
        asked = {**small, **fields, **more}

        def work(comm: dist.Comm) -> str:
            try:
                with mc.Trainer(config_of(tiny_text, **asked), new, comm=comm) as trainer:
                    return trainer.fit(progress=False).final_hash
            except (UserError, ReportedElsewhereError) as error:
                assert error.exit_code == 2
                return str(error)

        return on_ranks(work, 2, 1)

    assert limit.why in start(**refused)[0] and not new.exists()
    assert len(set(start())) == 1 and (new / "summary.json").is_file()


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: limit.asked)
def test_the_page_has_each_of_them(limit: Limit) -> None:
    section = (ROOT / "docs" / "parallel.md").read_text().split("## Refusals")[1].split("\n## ")[0]
    reason = limit.why.partition(";")[0]
    rows = [row for row in section.splitlines() if reason in row]
    assert any(limit.asked.partition(",")[0] in row and limit.mesh.split()[0] in row for row in rows)
