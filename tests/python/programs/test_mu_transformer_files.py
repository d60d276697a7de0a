"""Config files of mu-Transformer: files that return a ConfigDict use the same table."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mu_commands import resolved
from mudd_core.base.errors import UserError
from mudd_core.programs.load import load_config

DICT = """
from ml_collections import config_dict

def get_config():
    config = config_dict.ConfigDict()
    config.d_model = 64
    config.d_base = 32
    config.d_head = 32
    config.qk_scale = 1 / 32
    config.n_mesh_rows = 32
    config.lr_base = 1
    config.tokens_per_global_batch = 2048
    config.sequence_len = config.get_ref("d_head")
    config.model_size = "mine"
    config.own = 1
    return config
"""


def test_a_config_dict_goes_through_the_same_table(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DICT)
    found = resolved("n_layer=2", config=str(tmp_path / "mine.py"))
    config = found.config
    assert (config.model.d_model, config.model.n_layer, config.train.batch_size) == (64, 2, 64)
    assert config.optim.lr == 1.0 and config.train.steps == 125000  # base.py sets the other fields
    assert f"{tmp_path / 'mine.py'}: keys that mean nothing here: own" in found.notes
    assert any(
        note.startswith("n_mesh_rows=32, n_mesh_cols=1 of the file: mapped to mesh.zero=3")
        for note in found.notes
    )
    assert (config.mesh.zero, config.mesh.fsdp) == (3, -1)
    assert found.origins["model.d_model"].file == str(tmp_path / "mine.py")
    assert load_config(tmp_path / "mine.py", ["n_layer=2", "data.path=x"]).model == config.model


def test_a_checkout_of_the_original_is_imported_as_there(tmp_path: Path) -> None:
    folder = tmp_path / "mu_transformer" / "configs"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder.parent / "__init__.py").write_text("")
    (folder / "base.py").write_text(DICT.replace("get_config", "get_base_config"))
    (folder / "own.py").write_text(
        "from mu_transformer.configs.base import get_base_config\n"
        "def get_config():\n    config = get_base_config()\n    config.d_model = 96\n    return config\n"
    )
    path = list(sys.path)
    assert resolved(config=str(folder / "own.py")).config.model.d_model == 96
    assert sys.path == path
    for name in [name for name in sys.modules if name.split(".")[0] == "mu_transformer"]:
        del sys.modules[name]


def test_a_missing_ml_collections_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(DICT)
    monkeypatch.setitem(sys.modules, "ml_collections", None)
    with pytest.raises(UserError, match=r"run setup seeds"):
        resolved(config=str(tmp_path / "mine.py"))
