"""Files in MaxText's grammar: their paths, the files that they inherit from, and their defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mudd_core as mc
from maxtext_cases import MUDD, TOKENS, field, refusal, resolved
from mudd_core.base.errors import UserError
from mudd_core.programs.maxtext.yml import read_yml
from mudd_core.programs.program import rows_of


def test_leading_folders_that_do_not_exist_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolved("MaxText/configs/gpt2.yml", *TOKENS).files[0].endswith("configs/tokenformer/gpt2.yml")
    (tmp_path / "MaxText" / "configs").mkdir(parents=True)
    assert "no yml file" in refusal("MaxText/configs/gpt2.yml", *TOKENS)


def test_a_file_inherits_and_its_unknown_keys_are_one_warning(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    own.write_text("base_config: tokenformer.yml\nslot_num: 32\nadam_eps: 1e-6\nxprof: 1\nother: [1]\n")
    found = resolved(str(own), *TOKENS)
    assert field(found, "model.slot_num") == 32 and field(found, "optim.eps") == 1e-6
    assert [note for note in found.notes if "mean nothing" in note] == [
        f"{own}: keys that mean nothing here: other, xprof"
    ]
    own.write_text(f"base_config: {own}\n")
    assert "inherit from itself" in refusal(str(own), *TOKENS)
    for i in range(40):
        (tmp_path / f"{i}.yml").write_text(f"base_config: {tmp_path}/{i + 1}.yml\n")
    told = refusal(str(tmp_path / "0.yml"), *TOKENS)
    assert "15.yml: base_config: expected at most 16 files that inherit from each other, got more" in told


def test_a_key_that_a_file_has_twice_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "own.yml"
    file.write_text("base_config: base_v2.yml\nsteps: 7\nsaves: 1\nsteps: 9\n")
    found = resolved(str(file), *MUDD)
    assert found.config.train.steps == 9
    assert f"{file}: the last value of steps is used, given twice there" in found.notes


def test_a_run_of_an_earlier_version_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    earlier = tmp_path / "runs" / "output"
    earlier.mkdir(parents=True)
    words = ("run_name=output", *MUDD[1:])
    assert resolved("base_v2.yml", *words).workdir == "output"
    for name in ("config.json", "run.json"):
        (earlier / name).write_text("{}")
    found = resolved("base_v2.yml", *words)
    assert found.workdir == "runs/output"
    assert (
        "run_name=output: the existing run in runs/output is used; a new run would be in ./output"
        in found.notes
    )
    assert resolved("base_v2.yml", *words, "base_output_directory=x").workdir == "x/output"
    (tmp_path / "output").mkdir()
    for name in ("config.json", "run.json"):
        (tmp_path / "output" / name).write_text("{}")
    assert resolved("base_v2.yml", *words).workdir == "output"


def test_the_defaults_of_the_programs_base_files() -> None:
    keys = {row.name: row.default for row in rows_of("maxtext").values()}
    values = read_yml("base_v2.yml").values
    sizes = {
        "base_emb_dim": 4096,
        "base_num_query_heads": 32,
        "base_num_kv_heads": 32,
        "base_mlp_dim": 5632,
        "base_num_decoder_layers": 48,
        "vocab_size": 152_064,
    }
    assert {name: keys[name] for name in sizes} == sizes == {name: values[name] for name in sizes}
    assert read_yml("tokenformer.yml").values["logits_dot_in_fp32"] is True
    assert read_yml("gpt2.yml").values["logits_dot_in_fp32"] is True


def test_a_file_without_max_to_keep_keeps_all_checkpoints(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    values = {
        name: value for name, value in read_yml("tokenformer.yml").values.items() if name != "max_to_keep"
    }
    own.write_text(json.dumps(values))
    assert field(resolved(str(own), *TOKENS), "train.keep_last") == 0
    assert field(resolved(str(own), *TOKENS, "max_to_keep=2"), "train.keep_last") == 2
    assert field(resolved("base_v2.yml", *MUDD), "train.keep_last") == 4


def test_the_keys_of_the_programs_own_files_are_all_known() -> None:
    for word in (
        "attention=flash",
        "profiler=xplane",
        "base_mlp_dim=3072",
        "hf_path=parquet",
        "mesh_axes=[]",
    ):
        notes = resolved("tokenformer.yml", *TOKENS, word).notes
        assert [note for note in notes if note.startswith(f"{word}: ")] or word == "base_mlp_dim=3072"
    assert "docs/coming-from/tokenformer.md lists the keys" in refusal("tokenformer.yml", *TOKENS, "zzzzzz=1")
    assert "docs/coming-from/tokenformer.md lists the keys" in refusal("gpt2.yml", *TOKENS, "zzzzzz=1")


def test_load_config_takes_files_and_words_of_the_program() -> None:
    config = mc.load_config("MaxText/configs/base_v2.yml", [*MUDD[2:], "dataset_type=synthetic", "steps=9"])
    assert config.train.steps == 9 and config.data.pipeline == "synthetic"
    with pytest.raises(UserError, match="did you mean 'steps'"):
        mc.load_config("base_v2.yml", [*MUDD, "stepz=9"])


def test_a_dict_of_an_originals_file_has_its_own_keys() -> None:
    words = ["model_name=LlamaMedium", "steps=7", "per_device_batch_size=2", "dataset_type=synthetic"]
    keys = {"model_name": "LlamaMedium", "steps": 7, "per_device_batch_size": 2, "dataset_type": "synthetic"}
    assert mc.load_config("base_v2.yml", keys) == mc.load_config("base_v2.yml", words)
    assert mc.load_config("base_v2.yml", keys).train.steps == 7
