"""MaxText's log has the same weight norms from one process and from ranks that shard the weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from event_files import tags_of
from whole_runs import MIXTURE, SLOW, run


def test_the_log_reads_no_weight_that_has_not_come(tiny_text: Path, tmp_path: Path) -> None:
    fields = {"log.style": "maxtext", "log.weights": True, "model.vocab_size": 2000, "train.save": False}
    run(tmp_path / "one", tiny_text, 1, **fields)
    run(tmp_path / "two", tiny_text, 2, 1, SLOW, **fields)
    one, two = (tags_of(tmp_path / name / "tensorboard") for name in ("one", "two"))
    norms = [tag for tag in one if "param" in tag]
    assert len(norms) > 10 and all(two[tag] == one[tag] for tag in norms)


@pytest.mark.parametrize(
    ("mesh", "fields"),
    [({"mesh.zero": 3}, {}), ({"mesh.expert": 2}, MIXTURE), ({"mesh.expert": 2, "mesh.zero": 3}, MIXTURE)],
)
def test_norms_of_weights_that_ranks_cut_are_those_of_one_process(
    tiny_text: Path, tmp_path: Path, mesh: dict[str, Any], fields: dict[str, Any]
) -> None:
    log = {"log.style": "maxtext", "train.save": False, **fields}
    run(tmp_path / "one", tiny_text, 1, **log)
    run(tmp_path / "many", tiny_text, 4, 1, **log, **mesh)
    one, many = (tags_of(tmp_path / name / "tensorboard") for name in ("one", "many"))
    norms = [tag for tag in one if "param" in tag]
    assert len(norms) > 10 and all(many[tag] == one[tag] for tag in norms)
