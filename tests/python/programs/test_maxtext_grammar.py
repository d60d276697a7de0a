"""MaxText's grammar: arguments, variables, the work directory and the commands in the documents."""

from __future__ import annotations

import pytest

import documents
from maxtext_cases import MUDD, TOKENS, field, refusal, resolved


@pytest.mark.parametrize("word", ["=1", "=", "=x=y"])
def test_an_argument_without_a_name_is_dropped_with_a_note(word: str) -> None:
    assert any("without a name" in note for note in resolved("base_v2.yml", *MUDD, word).notes)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("stepz=5",), "did you mean 'steps'"),
        (("nothing_like_it=5",), "docs/coming-from/muddformer.md lists the keys"),
        (("steps",), "expected key=value"),
        (("steps=5", "steps=6"), "given twice: steps=5 and steps=6"),
        (("steps=5", "train.steps=6"), "given twice: steps=5 and train.steps=6"),
        (("steps=x",), "steps: expected a whole number, got 'x'"),
        (("steps=1.5",), "steps: expected a whole number"),
        (("scan_layers=maybe",), "expected true or false"),
        (("per_device_batch_size=0.5",), "from 1, got 0.5"),
        (("ici_sequence_parallelism=2",), "1.6 to 29 times as long as its computation"),
        (
            ("dcn_pipeline_parallelism=2",),
            "pipeline stages are not implemented yet; leave this key out (ici_fsdp_parallelism=-1 uses all ranks)",
        ),
        (("ici_expert_parallelism=-1",), "expected the number of ranks"),
        (("ici_fsdp_parallelism=0",), "expected -1 (all remaining ranks) or at least 1, got 0"),
        (("dataset_type=tfds",), "dataset_type: there is no tfds here; use dataset_type=grain"),
        (("dataset_type=pretrain_4k",), "dataset_type=pile"),
        (("dataset_type=c5",), "expected pile, grain"),
        (("global_parameter_scale=3",), "another power of two, got 3"),
        (("quantization=int8",), "quantization= (empty)"),
        (("per_device_batch_size=0.5",), "type --devices=2 for a batch of 1 sequence"),
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


def test_fields_of_ours_may_stand_beside() -> None:
    found = resolved("base_v2.yml", *MUDD, "train.threads=3", "--train.log_every", "4")
    assert field(found, "train.threads") == 3 and field(found, "train.log_every") == 4


@pytest.mark.parametrize("name", ["muddformer", "tokenformer"])
def test_the_documents_commands_come_to_the_committed_configs(name: str) -> None:
    assert documents.outcomes(name) == documents.kept(name)


def test_variables_that_do_nothing_here_are_noted_once_and_secrets_never() -> None:
    notes = resolved("base_v2.yml", *MUDD, XLA_FLAGS="a", XLA_OTHER="b", HF_TOKEN="secret", HOME="h").notes
    assert sum(note.startswith("XLA_") for note in notes) == 2
    assert "secret" not in str(notes)
