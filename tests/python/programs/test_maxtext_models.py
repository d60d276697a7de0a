"""MaxText's classes, base files and size keys: each is the model of a mudd_core config."""

from __future__ import annotations

import dataclasses

import pytest

import mudd_core as mc
from maxtext_cases import LLAMA, MUDD, TOKENS, WORDS, field, resolved
from mudd_core.config.fields import walk


def test_a_class_goes_over_the_file_and_a_typed_key_over_both() -> None:
    found = resolved("base_v2.yml", *MUDD)
    assert field(found, "optim.schedule_steps") == 13_500 and field(found, "optim.warmup_steps") == 135
    assert field(found, "train.steps") == 10_000_000 and field(found, "train.seq_len") == 2048
    assert field(found, "train.batch_size") == 32 and field(found, "eval.max_batches") == 162
    typed = resolved("base_v2.yml", *MUDD, "base_mlp_dim=384", "eval_loop_num_batches=-1", "steps=-1")
    assert field(typed, "model.d_ff") == 384 and field(typed, "eval.max_batches") == 0
    assert field(typed, "train.steps") == 13_500 and field(typed, "optim.schedule_steps") == 0


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("LlamaMedium", "llama_medium"),
        ("Llama2Medium", "llama2_medium"),
        ("MUDDLlama2Medium", "mudd_llama2_medium"),
        ("Llama7B", "llama_7b"),
    ],
)
def test_each_class_is_the_model_of_our_config(name: str, ours: str) -> None:
    found = resolved("base_v2.yml", "run_name=r", "dataset_path=d", "dataset_type=pile", f"model_name={name}")
    expected = mc.load_config(f"muddformer/{ours}").model
    for info in walk(expected):
        value = getattr(found.config.model, info.path)
        assert value == info.value or (info.value == 0 and info.path in ("d_head", "n_kv_head")), info.path


MIXTURE = ("base_mlp_dim=1408", "num_experts=16", "num_experts_per_tok=2")


def test_experts_of_the_mudd_class_are_the_model_of_our_config() -> None:
    plain = ("mudd_prenorm=False", "mudd_postnorm=False")
    found = resolved("base_v2.yml", *MUDD, *MIXTURE, *plain).config.model
    expected = mc.load_config("muddformer/405m_moe").model
    assert dataclasses.replace(found, n_kv_head=0, d_head=0) == expected
    balanced = resolved("base_v2.yml", *MUDD, *MIXTURE, "model.aux_coef=0.01").config.model
    assert (found.aux_coef, balanced.aux_coef) == (0.0, 0.01)
    assert resolved("base_v2.yml", *MUDD, "num_experts=0", "num_experts_per_tok=2").config.model.n_expert == 0


def test_experts_of_the_llama_classes_are_a_mixtral() -> None:
    words = ("run_name=r", "dataset_path=d", "dataset_type=pile", "model_name=Llama2Medium")
    dense = resolved("base_v2.yml", *words).config.model
    found = resolved("base_v2.yml", *words, *MIXTURE).config.model
    assert found.family == "mixtral"
    assert (found.n_expert, found.top_k, found.d_ff, found.aux_coef) == (16, 2, 1408, 0.0)
    same = ("vocab_size", "max_seq_len", "d_model", "n_layer", "n_head", "rope_base", "norm_eps", "init_std")
    assert [getattr(found, name) for name in same] == [getattr(dense, name) for name in same]


@pytest.mark.parametrize(("file", "ours"), [("tokenformer.yml", "124m"), ("gpt2.yml", "gpt2_baseline")])
def test_the_base_files_of_tokenformer_are_the_models_of_our_configs(file: str, ours: str) -> None:
    words = ["logits_via_embedding=True"]
    words += ["slot_num=576", "drop_path=0"] if ours == "124m" else []
    found = resolved(file, *TOKENS, *words).config.model
    expected = mc.load_config(f"tokenformer/{ours}").model
    shape = {info.path: info.value for info in walk(expected)}
    resolved_zeros = {"d_head", "d_ff", "proj_slot_num", "ffn_slot_num", "slot_num"}
    assert {k: getattr(found, k) for k in shape if k not in resolved_zeros} == {
        k: v for k, v in shape.items() if k not in resolved_zeros
    }
    assert (file == "gpt2.yml") or found.slot_num == 576


def test_the_file_of_tokenformer_has_its_own_defaults() -> None:
    found = resolved("tokenformer.yml", *TOKENS)
    expected = {
        "model.slot_num": 768,
        "model.drop_path": 0.1,
        "model.tie_embeddings": False,
        "train.steps": 150_001,
        "train.batch_size": 2,
        "train.eval_every": 100,
        "train.save_every": 10_000,
        "train.keep_last": 0,
        "train.seq_len": 1024,
        "optim.lr": 6e-4,
        "optim.warmup": "zero",
        "optim.warmup_steps": 1500,
        "optim.decay": "all",
        "data.pipeline": "pack",
        "data.path": "f*",
    }
    assert {path: field(found, path) for path in expected} == expected


def test_the_scale_of_all_sizes_is_that_of_the_program() -> None:
    def sizes(scale: int) -> tuple[int, ...]:
        words = (*MUDD[:2], "model_name=Llama2Medium", f"global_parameter_scale={scale}")
        model = resolved("base_v2.yml", *words).config.model
        return tuple(int(getattr(model, name)) for name in ("d_model", "n_head", "d_ff", "n_layer"))

    assert sizes(2) == (1024, 32, 5632, 24)
    assert sizes(4) == (2048, 32, 5632, 24)
    assert sizes(8) == (2048, 32, 5632, 48)
    assert sizes(16) == (2048, 64, 11264, 48)


def test_the_origin_of_a_size_is_its_own_key_and_a_scale_is_added() -> None:
    sizes = {
        "base_emb_dim=64": "model.d_model",
        "base_num_query_heads=4": "model.n_head",
        "base_num_kv_heads=4": "model.n_kv_head",
        "base_mlp_dim=96": "model.d_ff",
        "base_num_decoder_layers=2": "model.n_layer",
    }
    for scale in ((), ("global_parameter_scale=1",)):
        found = resolved(*LLAMA, *sizes, *scale)
        assert {found.origins[path].word: path for path in sizes.values()} == sizes
        assert found.origins["model.d_model"].default == 4096
    found = resolved(*LLAMA, "base_emb_dim=64", "global_parameter_scale=8")
    assert found.origins["model.d_model"].word == "base_emb_dim=64 global_parameter_scale=8"
    assert found.origins["model.n_layer"].word == "global_parameter_scale=8"
    assert found.origins["model.n_layer"].file == "class LlamaMedium"
    assert resolved("tokenformer.yml", *WORDS).origins["model.d_model"].file.endswith("tokenformer.yml")
