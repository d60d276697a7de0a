"""Meshes in the original programs' grammars: the mudd_core mesh of each, and a training with it on four ranks."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

import documents
from mudd_core.base.errors import UserError
from mudd_core.config import Config, check_config, mesh_of
from mudd_core.programs.detect import resolve
from mudd_core.programs.program import CommandLine
from mudd_core.programs.resolved import Resolved
from rank_runs import train

MUDD = ("run_name=r", "dataset_path=d", "model_name=MUDDLlama2Medium")
EXPERTS = ("num_experts=4", "num_experts_per_tok=2")
TOKENS = ("run_name=r", "dataset_type=grain", "grain_train_files=f*")
MU = "mu_transformer/configs/small.py"
SMALL = {"vocab_size": 61, "max_seq_len": 16, "d_model": 64, "n_layer": 2, "n_head": 2}


def found(file: str, *words: str) -> Resolved:
    if file == "clm":
        with documents.hub():
            result = resolve(CommandLine("clm", "", ("model.config_path=mixtral80.json", *words), {}, {}))
    else:
        result = resolve(CommandLine(config=file, words=words))
    assert result is not None
    check_config(result.config)
    return result


def small(config: Config, **sizes: Any) -> Config:
    """Return a tiny model of the config's family, in its mesh."""
    names = {field.name for field in fields(config.model)}
    known = {name: value for name, value in (SMALL | sizes).items() if name in names}
    train_fields = {"batch_size": 8, "seq_len": 16, "logical_shards": 8, "micro_batch_size": 0, "threads": 1}
    model, short = replace(config.model, **known), replace(config.train, **train_fields, precision="fp32")
    loss = replace(config.loss, normalize="valid")
    return replace(config, model=model, train=short, loss=loss, optim=replace(config.optim, lr=1e-3))


SLOTS = {"slot_num": 16, "proj_slot_num": 16, "ffn_slot_num": 16}
CASES: dict[str, tuple[str, tuple[str, ...], tuple[int, int, int, int], dict[str, Any]]] = {
    "muP rows": (MU, ("n_mesh_rows=4",), (1, 4, 1, 3), {"d_head": 32, "d_base": 32}),
    "muP rows and columns": (
        MU,
        ("n_mesh_rows=2", "n_mesh_cols=2"),
        (1, 4, 1, 3),
        {"d_head": 32, "d_base": 32},
    ),
    "MUDDFormer fsdp": (
        "base_v2.yml",
        (*MUDD, "ici_fsdp_parallelism=2"),
        (-1, 2, 1, 3),
        {"d_ff": 256, "n_kv_head": 2},
    ),
    "MUDDFormer experts": (
        "base_v2.yml",
        (*MUDD, *EXPERTS, "ici_expert_parallelism=2", "ici_data_parallelism=2", "ici_fsdp_parallelism=1"),
        (-1, 2, 2, 1),
        {"d_ff": 64, "n_kv_head": 2},
    ),
    "MUDDFormer experts and fsdp": (
        "base_v2.yml",
        (*MUDD, *EXPERTS, "ici_expert_parallelism=2", "ici_fsdp_parallelism=2"),
        (-1, 4, 2, 3),
        {"d_ff": 64, "n_kv_head": 2},
    ),
    "TokenFormer tensor": (
        "tokenformer.yml",
        (*TOKENS, "ici_tensor_parallelism=2", "dcn_fsdp_parallelism=2", "ici_fsdp_parallelism=1"),
        (-1, 4, 1, 3),
        SLOTS,
    ),
    "TokenFormer data": ("tokenformer.yml", (*TOKENS, "dcn_data_parallelism=2"), (2, -1, 1, 3), SLOTS),
    "benchmark tensor": ("clm", ("tensor_parallelism=2",), (-1, -1, 1, 3), {"d_ff": 64, "n_kv_head": 2}),
    "benchmark experts": ("clm", ("+mesh.expert=4",), (-1, -1, 4, 1), {"d_ff": 64, "n_kv_head": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mesh_of_an_original_trains_on_four_ranks(name: str) -> None:
    file, words, (data, fsdp, expert, zero), sizes = CASES[name]
    result = found(file, *words)
    mesh = result.config.mesh
    assert (mesh.data, mesh.fsdp, mesh.expert, mesh.zero) == (data, fsdp, expert, zero)
    taken = [note for note in result.notes if ": mapped to mesh." in note]
    assert len(taken) == (0 if name == "benchmark experts" else 1)  # mudd_core's own fields need no note
    assert ("tensor multiplies fsdp" in "".join(taken)) == ("tensor" in name)
    assert (
        mesh_of(result.config if result.config.train.batch_size >= 4 else small(result.config), 4).world == 4
    )
    config = small(result.config, **sizes)
    one = replace(config, mesh=replace(mesh, data=-1, fsdp=-1, expert=1, zero=1))
    assert train(config, 4, steps=2) == train(one, 1, steps=2)


def test_sizes_of_one_and_of_what_is_left_decide_nothing() -> None:
    for file, words in (("base_v2.yml", MUDD), ("tokenformer.yml", TOKENS), (MU, ()), ("clm", ())):
        mesh = found(file, *words).config.mesh
        assert (mesh.data, mesh.fsdp, mesh.expert, mesh.zero) == (-1, -1, 1, 1)
    same = found("base_v2.yml", *MUDD, "ici_fsdp_parallelism=-1", "ici_tensor_parallelism=1")
    assert same.config.mesh.zero == 1 and not [note for note in same.notes if "mapped to" in note]


def test_a_field_of_ours_may_keep_whole_weights() -> None:
    kept = found("base_v2.yml", *MUDD, "ici_fsdp_parallelism=4", "mesh.zero=1")
    assert (kept.config.mesh.fsdp, kept.config.mesh.zero) == (4, 1)


def test_a_field_of_ours_that_a_message_proposes_may_be_typed_beside_the_key() -> None:
    for file, words in (("base_v2.yml", (*MUDD, "ici_fsdp_parallelism=4")), (MU, ("n_mesh_rows=4",))):
        other = found(file, *words, "mesh.data=-1", "mesh.fsdp=-1")
        assert str(mesh_of(other.config, 8)) == "data 1 x fsdp 8"
        assert f"mesh.fsdp=-1: replaces the value that {words[-1]} sets" in other.notes


REFUSED = [
    *(
        (file, f"{network}_{axis}_parallelism=2", "ici_fsdp_parallelism=-1")
        for file in ("base_v2.yml", "tokenformer.yml")
        for network in ("ici", "dcn")
        for axis in ("sequence", "autoregressive", "pipeline")
    ),
    *(
        ("clm", f"{axis}_parallelism=2", "+mesh.zero=3")
        for axis in ("context", "pipeline", "virtual_pipeline")
    ),
    *(
        ("clm", word, "+mesh.expert=2")
        for word in ("expert_parallelism=2", "+expert_parallelism=2", "ep_size=2")
    ),
    ("clm", "zero_stage=3", "+mesh.zero=3"),
]


@pytest.mark.parametrize(("file", "word", "typed"), REFUSED)
def test_what_a_refused_axis_names_works_as_it_is_typed(file: str, word: str, typed: str) -> None:
    words = {"base_v2.yml": MUDD, "tokenformer.yml": TOKENS, "clm": ()}[file]
    with pytest.raises(UserError) as caught:
        found(file, *words, word)
    assert typed in str(caught.value) and "did you mean" not in str(caught.value)
    mesh = mesh_of(small(found(file, *words, typed).config), 4)
    assert mesh.world == 4 and mesh.expert == (2 if "expert" in typed else 1)


@pytest.mark.parametrize("word", ["ici_pipeline_parallelism=2", "+contexts_parallelism=2"])
def test_a_key_that_is_refused_is_not_proposed(word: str) -> None:
    with pytest.raises(UserError, match="there is no key") as caught:
        found("clm", word)
    proposed = str(caught.value).partition("did you mean")[2]
    assert "context_" not in proposed and "pipeline_" not in proposed


def test_a_mesh_says_how_many_ranks_it_needs() -> None:
    config = found(MU, "n_mesh_rows=4", "n_mesh_cols=2").config
    with pytest.raises(UserError, match=r"= 8, but 1 rank was started: start --ranks=8"):
        mesh_of(config, 1)
    assert str(mesh_of(config, 8)) == "data 1 x fsdp 8"
