"""MaxText's grammar: a yml file, a class over it, variables, key=value."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import documents
import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config.fields import walk
from mudd_core.engine.rates import learning_rate
from mudd_core.programs import detect
from mudd_core.programs.maxtext.yml import read_yml
from mudd_core.programs.program import CommandLine, rows_of
from mudd_core.programs.resolved import Resolved

MUDD = ("run_name=r", "dataset_path=d", "model_name=MUDDLlama2Medium")
TOKENS = ("run_name=r", "dataset_type=grain", "grain_train_files=f*")


def resolved(file: str, *words: str, **environment: str) -> Resolved:
    found = detect.resolve(CommandLine(config=file, words=words, environment=environment))
    assert found is not None and found.grammar == "maxtext"
    return found


def field(found: Resolved, path: str) -> object:
    return next(info.value for info in walk(found.config) if info.path == path)


def refusal(file: str, *words: str, **environment: str) -> str:
    with pytest.raises(UserError) as error:
        resolved(file, *words, **environment)
    return str(error.value)


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
    assert f"{file}: the last value of steps holds, given twice there" in found.notes


@pytest.mark.parametrize("word", ["=1", "=", "=x=y"])
def test_an_argument_without_a_name_is_dropped_with_a_note(word: str) -> None:
    assert any("without a name" in note for note in resolved("base_v2.yml", *MUDD, word).notes)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("stepz=5",), "did you mean 'steps'"),
        (("nothing_like_it=5",), "docs/coming-from/muddformer.md has the keys"),
        (("steps",), "expected key=value"),
        (("steps=5", "steps=6"), "given twice: steps=5 and steps=6"),
        (("steps=5", "train.steps=6"), "given twice: steps=5 and train.steps=6"),
        (("steps=x",), "steps: expected a whole number, got 'x'"),
        (("steps=1.5",), "steps: expected a whole number"),
        (("scan_layers=maybe",), "expected true or false"),
        (("per_device_batch_size=0.5",), "from 1, got 0.5"),
        (("ici_sequence_parallelism=2",), "1.6 to 29 times what its computation takes"),
        (
            ("dcn_pipeline_parallelism=2",),
            "pipeline stages are not built yet; leave it out: ici_fsdp_parallelism=-1 takes its ranks",
        ),
        (("ici_expert_parallelism=-1",), "expected the number of ranks"),
        (("ici_fsdp_parallelism=0",), "expected -1 (what is left) or at least 1, got 0"),
        (("dataset_type=tfds",), "dataset_type: there is no tfds here; take dataset_type=grain"),
        (("dataset_type=pretrain_4k",), "dataset_type=pile"),
        (("dataset_type=c5",), "expected pile, grain"),
        (("global_parameter_scale=3",), "another power of two, got 3"),
        (("quantization=int8",), "quantization= (empty)"),
        (("per_device_batch_size=0.5",), "--devices=2 makes 1 sequence of it"),
        (("weight_dtype=bfloat16",), "weight_dtype=float32"),
        (("dropout_rate=0.1",), "dropout_rate=0"),
        (("eval_shuffle_buffer_size=10",), "eval_shuffle_buffer_size=None"),
        (("packing_train=False",), "packing_train=True"),
        (("slot_num=5",), "has no such key"),
        (
            ("num_experts=4", "num_experts_per_tok=5"),
            "num_experts_per_tok: expected a whole number from 1 to 4, got 5",
        ),
        (("num_experts=4", "decoder_block=gpt3"), "only decoder_block=llama2 has experts"),
        (("hardware=abacus",), "expected cpu"),
        (("opt_type=lion",), "expected adamw"),
        (("load_parameters_path=a", "load_full_state_path=b"), "expected one of"),
    ],
)
def test_what_is_refused_names_the_way_out(words: tuple[str, ...], part: str) -> None:
    assert part in refusal("base_v2.yml", *MUDD, *words)


def test_the_class_the_run_and_the_files_have_to_be_named() -> None:
    assert "did you mean 'Llama2Medium'" in refusal("base_v2.yml", *MUDD[:2], "model_name=Llama2Mediun")
    assert "add model_name=" in refusal("base_v2.yml", *MUDD[:2])
    assert "run_name" in refusal("base_v2.yml", *MUDD[1:])
    assert "dataset_path=FILES" in refusal("base_v2.yml", MUDD[0], MUDD[2])
    assert "leave out" in refusal("tokenformer.yml", *TOKENS, "model_name=Llama2Medium")
    assert "did you mean 'base_v2.yml'" in refusal("base_v3.yml", *MUDD)


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
    assert "run_name=output: the run in runs/output is taken; a new run is in ./output" in found.notes
    assert resolved("base_v2.yml", *words, "base_output_directory=x").workdir == "x/output"
    (tmp_path / "output").mkdir()
    for name in ("config.json", "run.json"):
        (tmp_path / "output" / name).write_text("{}")
    assert resolved("base_v2.yml", *words).workdir == "output"


def test_the_scale_of_all_sizes_is_that_of_the_program() -> None:
    def sizes(scale: int) -> tuple[int, ...]:
        words = (*MUDD[:2], "model_name=Llama2Medium", f"global_parameter_scale={scale}")
        model = resolved("base_v2.yml", *words).config.model
        return tuple(int(getattr(model, name)) for name in ("d_model", "n_head", "d_ff", "n_layer"))

    assert sizes(2) == (1024, 32, 5632, 24)
    assert sizes(4) == (2048, 32, 5632, 24)
    assert sizes(8) == (2048, 32, 5632, 48)
    assert sizes(16) == (2048, 64, 11264, 48)


def test_variables_set_keys_and_may_not_repeat_them() -> None:
    found = resolved("base_v2.yml", *MUDD, M_STEPS="7", HARDWARE="tpu")
    assert field(found, "train.steps") == 7 and found.origins["train.steps"].word == "M_STEPS=7"
    assert any(note.startswith("HARDWARE") for note in found.notes)
    assert "given twice" in refusal("base_v2.yml", *MUDD, "steps=7", M_STEPS="7")
    assert "did you mean 'M_STEPS'" in refusal("base_v2.yml", *MUDD, M_STEPZ="7")
    assert "in capitals" in refusal("base_v2.yml", *MUDD, M_steps="7")


def test_the_work_directory() -> None:
    def place(*words: str) -> str:
        return resolved("base_v2.yml", *words, *MUDD[1:]).workdir

    assert place("run_name=a") == "a" and place("run_name=./out/") == "out"
    assert place("run_name=a", "base_output_directory=gs://b/") == "gs://b/a"
    assert place("run_name=/x//output/", "base_output_directory=y") == "/x/output"
    assert place("run_name=gs://b/out/") == "gs://b/out"
    assert resolved("base_v2.yml", "run_name=/x//output/", *MUDD[1:]).config.name == "output"


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


WORDS = ("run_name=r", "dataset_type=synthetic")
LLAMA = ("base_v2.yml", *WORDS, "model_name=LlamaMedium")


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


@pytest.mark.parametrize(
    ("command", "word"),
    [
        *(
            (LLAMA, word)
            for word in ("use_untrainable_positional_embedding=False", "trainable_position_size=-1")
        ),
        *(
            ((file, *WORDS), word)
            for file in ("tokenformer.yml", "gpt2.yml")
            for word in ("num_experts=1", "num_experts_per_tok=1", "rope_max_timescale=10000")
        ),
        *((LLAMA, word) for word in ("dense_conn=True", "dynamic_dense_type=qkvm", "mudd_prenorm=True")),
    ],
)
def test_a_key_that_the_model_does_not_read_is_noted(command: tuple[str, ...], word: str) -> None:
    plain, found = resolved(*command), resolved(*command, word)
    assert found.config == plain.config
    assert [note for note in found.notes if note not in plain.notes and note.startswith(f"{word}: ")]


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (LLAMA, "trainable_position_size=128"),
        (LLAMA, "use_untrainable_positional_embedding=True"),
        (("gpt2.yml", *WORDS), "rope_max_timescale=500000"),
        (("tokenformer.yml", *WORDS), "dense_conn=True"),
        (("gpt2.yml", *WORDS), "slot_num=768"),
    ],
)
def test_another_value_of_such_a_key_is_refused(command: tuple[str, ...], word: str) -> None:
    assert f"{word}: " in refusal(*command, word) and "has no such key" in refusal(*command, word)


@pytest.mark.parametrize(("interval", "off"), [("-1", True), ("0", True), ("None", True), ("5", False)])
def test_an_interval_of_no_steps_validates_nothing(interval: str, off: bool) -> None:
    for command in (LLAMA, ("tokenformer.yml", *WORDS)):
        found = resolved(*command, f"eval_interval={interval}").config
        assert found.eval.off is off and (found.train.eval_every == 0) is off


def test_rates_after_the_schedule_follow_each_program() -> None:
    short = ("steps=20", "learning_rate_schedule_steps=10")
    token, mudd = resolved("tokenformer.yml", *TOKENS, *short), resolved("base_v2.yml", *MUDD, *short)
    assert [learning_rate(token.config, t) > 0 for t in (1, 9, 10, 19)] == [True, True, False, False]
    assert learning_rate(mudd.config, 10) == learning_rate(mudd.config, 19) == pytest.approx(3e-5)
    assert (
        field(resolved("tokenformer.yml", *TOKENS), "optim.after_schedule") == "final"
    )  # nothing comes after it
    assert learning_rate(resolved("gpt2.yml", *TOKENS, *short, "use_constant_lr=True").config, 19) == 6e-4


def test_sgd_has_momentum_and_no_decay() -> None:
    found = resolved("tokenformer.yml", *TOKENS, "opt_type=sgd", "momentum=0.8", "nesterov=False")
    assert field(found, "optim.weight_decay") == 0.0 and field(found, "optim.momentum") == 0.8
    assert field(found, "optim.nesterov") is False and field(found, "optim.name") == "sgd"
    assert field(resolved("tokenformer.yml", *TOKENS, "opt_type=sgd"), "optim.nesterov") is True
    assert field(resolved("base_v2.yml", *MUDD, "adam_eps_root=1e-9"), "optim.eps_root") == 1e-9


def test_a_file_without_max_to_keep_keeps_all_checkpoints(tmp_path: Path) -> None:
    own = tmp_path / "own.yml"
    values = {
        name: value for name, value in read_yml("tokenformer.yml").values.items() if name != "max_to_keep"
    }
    own.write_text(json.dumps(values))
    assert field(resolved(str(own), *TOKENS), "train.keep_last") == 0
    assert field(resolved(str(own), *TOKENS, "max_to_keep=2"), "train.keep_last") == 2
    assert field(resolved("base_v2.yml", *MUDD), "train.keep_last") == 4


def test_a_full_state_continues_at_its_step() -> None:
    found = resolved("base_v2.yml", *MUDD, "load_full_state_path=w")
    assert field(found, "start.keep_optimizer") is True and field(found, "start.keep_step") is True
    assert field(resolved("base_v2.yml", *MUDD, "load_parameters_path=w"), "start.keep_step") is False


def test_keys_that_do_nothing_here_are_noted_when_typed() -> None:
    quiet = resolved("base_v2.yml", *MUDD)
    assert len(quiet.notes) == 1 and "8 devices made 256" in quiet.notes[0]
    assert "16 devices made 512" in resolved("tokenformer.yml", *TOKENS, "per_device_batch_size=32").notes[0]
    loud = resolved("base_v2.yml", *MUDD, "remat_policy=minimal", "ici_data_parallelism=-1", "hardware=cpu")
    assert len(loud.notes) == 2


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
    assert "docs/coming-from/tokenformer.md has the keys" in refusal("tokenformer.yml", *TOKENS, "zzzzzz=1")
    assert "docs/coming-from/tokenformer.md has the keys" in refusal("gpt2.yml", *TOKENS, "zzzzzz=1")


def test_fields_of_ours_may_stand_beside() -> None:
    found = resolved("base_v2.yml", *MUDD, "train.threads=3", "--train.log_every", "4")
    assert field(found, "train.threads") == 3 and field(found, "train.log_every") == 4


@pytest.mark.parametrize(("runs", "size"), [("1", 1), ("4", 8), ("3", 1)])
def test_accumulation_cuts_the_batch_into_runs(runs: str, size: int) -> None:
    found = resolved("base_v2.yml", *MUDD, f"gradient_accumulation_steps={runs}")
    assert field(found, "train.micro_batch_size") == size
    assert any("gradient_accumulation" in note for note in found.notes) == (runs == "3")


@pytest.mark.parametrize("name", ["muddformer", "tokenformer"])
def test_the_documents_commands_come_to_the_committed_configs(name: str) -> None:
    assert documents.outcomes(name) == documents.kept(name)


def test_load_config_takes_files_and_words_of_the_program() -> None:
    config = mc.load_config("MaxText/configs/base_v2.yml", [*MUDD[2:], "dataset_type=synthetic", "steps=9"])
    assert config.train.steps == 9 and config.data.pipeline == "synthetic"
    with pytest.raises(UserError, match="did you mean 'steps'"):
        mc.load_config("base_v2.yml", [*MUDD, "stepz=9"])


def test_variables_that_do_nothing_here_are_noted_once_and_secrets_never() -> None:
    notes = resolved("base_v2.yml", *MUDD, XLA_FLAGS="a", XLA_OTHER="b", HF_TOKEN="secret", HOME="h").notes
    assert sum(note.startswith("XLA_") for note in notes) == 2
    assert "secret" not in str(notes)
