"""The table of keys: no name of an original program is missing, and every mapped key has an effect."""

from __future__ import annotations

import pytest

import documents
from mudd_core.base.errors import UserError
from mudd_core.config import Config, MUDDFormerConfig, TransformerPPConfig
from mudd_core.config.fields import walk
from mudd_core.programs.detect import resolve
from mudd_core.programs.maxtext.model import model_of
from mudd_core.programs.maxtext.muddformer_jax import MuddformerJax
from mudd_core.programs.maxtext.tokenformer_jax import TokenFormerJax
from mudd_core.programs.program import CommandLine, rows_of, table
from mudd_core.programs.resolved import Resolved
from mudd_core.programs.row import Row
from places import TESTS

DOCUMENTS = TESTS / "data" / "documents"
MUDD = ("base_v2.yml", "run_name=r", "dataset_path=d", "model_name=MUDDLlama2Medium")
TOKENS = ("tokenformer.yml", "run_name=r", "dataset_type=grain", "grain_train_files=f")
DENSE = ("gpt2.yml", *TOKENS[1:])
TIED = (*TOKENS, "logits_via_embedding=True")
# A command without the key, and the value to add. A key in the base file of MUDDFormer's program has one value.
CHANGED: dict[str, tuple[tuple[str, ...], str]] = {
    "run_name": (("tokenformer.yml", *TOKENS[2:]), "q"),
    "base_output_directory": (MUDD, "/b"),
    "model_name": (MUDD[:3], "Llama2Medium"),
    "dataset_path": (("base_v2.yml", "run_name=r", MUDD[3]), "e"),
    "grain_train_files": (TOKENS[:3], "g"),
    "grain_eval_files": (TOKENS, "e"),
    "eval_split": (MUDD, "held"),
    "dataset_type": (MUDD, "synthetic"),
    "grain_worker_count": (TOKENS, "8"),
    "tokenizer_path": (TOKENS, "gpt2"),
    "enable_data_shuffling": (TOKENS, "False"),
    "train_shuffle_buffer_size": (MUDD, "100"),
    "epoch": (MUDD, "2"),
    "zero_loss": (MUDD, "True"),
    "reuse_example_batch": (MUDD, "1"),
    "eval_per_device_batch_size": (MUDD, "16"),
    "gradient_accumulation_steps": (MUDD, "2"),
    "use_constant_lr": (MUDD, "True"),
    "opt_type": (MUDD, "sgd"),
    "nesterov": (MUDD, "False"),
    "global_parameter_scale": (TOKENS, "2"),
    "dtype": (MUDD, "float32"),
    "enable_dropout": (TOKENS, "False"),
    "eval_batch_num": (TOKENS, "3"),
    "only_eval": (MUDD, "True"),
    "eval_start_step": (MUDD, "1"),
    "enable_checkpointing": (MUDD, "False"),
    "async_checkpointing": (MUDD, "False"),
    "load_parameters_path": (MUDD, "w"),
    "load_full_state_path": (MUDD, "w"),
    "load_parameters_path_slot_number": ((*TOKENS, "load_parameters_path=w"), "576"),
    "load_parameters_zero_init": ((*TOKENS, "load_parameters_path=w"), "True"),
    "record_internal_nn_metrics": (MUDD, "0"),
    "metrics_file": (MUDD, "m.jsonl"),
    "decoder_block": (TOKENS, "gpt3 base_mlp_dim=64 mlp_activations=[silu]"),
    "base_emb_dim": (TOKENS, "512"),
    "base_num_query_heads": (TOKENS, "6 base_num_kv_heads=6"),
    "base_num_kv_heads": (MUDD, "8"),
    "base_mlp_dim": (DENSE, "64"),
    "base_num_decoder_layers": (TOKENS, "2"),
    "head_dim": (TOKENS, "32"),
    "mlp_activations": (DENSE, "[relu]"),
    "logits_via_embedding": (TOKENS, "True"),
    "normalize_embedding_logits": (TIED, "False"),
    "num_experts": (MUDD, "16"),
    "num_experts_per_tok": ((*MUDD, "num_experts=16"), "2"),
    "dense_conn": (MUDD, "False"),
    "dynamic_mlp_dim": (MUDD, "False"),
    "dynamic_dense_act_cls": (MUDD, "relu"),
    "dynamic_dense_fix_last_layer": (MUDD, "False"),
    "dynamic_dense_hidden_expand": (MUDD, f"[{'1,' * 23}2]"),
    "dynamic_dense_hidden_round": (MUDD, "False"),
    "mudd_prenorm": (MUDD, "False"),
    "mudd_postnorm": (MUDD, "False"),
    "slot_num": (TOKENS, "32"),
    "normalize_type": (TOKENS, "softmax"),
    "qkv_bias": (TOKENS, "True"),
    "proj_bias": (TOKENS, "True"),
    "ffn_bias": (TOKENS, "True"),
    "drop_path": (TOKENS, "0.5"),
    "use_untrainable_positional_embedding": (TOKENS, "True"),
    "trainable_position_size": (TOKENS, "1024"),
}
FRACTIONS = {"adam_b1", "adam_b2", "warmup_steps_fraction", "cosine_learning_rate_final_fraction"}
# Their only other value leads to the same config.
ALIKE = {"base_config": "names a file", "dynamic_dense_type": "qkvr is another name of qkvm"}


def resolved(words: tuple[str, ...]) -> Resolved:
    found = resolve(CommandLine(config=words[0], words=words[1:]))
    assert found is not None
    return found


def outcome(found: Resolved) -> tuple[Config, str, str]:
    return found.config, found.workdir, found.command


def example(row: Row) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a command without the key, and one with it."""
    tokens = ("zoom_dim", "qkv_scale_factor", "proj_scale_factor", "ffn_scale_factor")
    number = "0.5" if row.name in FRACTIONS else "48"
    base, text = CHANGED.get(row.name, (TOKENS if row.name in tokens else MUDD, number))
    whole = TOKENS if base[0] == "tokenformer.yml" else MUDD
    before = base if len(base) >= len(whole) else whole  # it may lack a required key
    return before, (*base, *f"{row.name}={text}".split(" "))


MAPPED = [row for row in rows_of("maxtext").values() if row.fate == "mapped" and row.name not in ALIKE]


@pytest.mark.parametrize("row", MAPPED, ids=lambda row: row.name)
def test_a_mapped_key_changes_what_the_command_comes_to(row: Row) -> None:
    before, after = map(resolved, example(row))
    assert outcome(before) != outcome(after)
    old = {info.path: info.value for info in walk(before.config)}
    changed = {info.path for info in walk(after.config) if info.value != old.get(info.path)}
    named = {
        path for path in row.fields if not path.startswith("(") and path not in ("model", "model.family")
    }
    assert changed & named or not named, changed


def test_no_name_stands_twice_and_every_row_says_what_it_does() -> None:
    names = [(row.grammar, row.name) for row in table()]
    assert len(names) == len(set(names))
    assert all(row.text for row in table() if row.fate in ("noted", "refused"))
    paths = {info.path for info in walk(Config())}
    for row in table():
        for path in row.fields:
            assert path in paths or path.startswith(("(", "model")), (row.name, path)


def test_no_name_of_the_documents_and_pages_is_missing() -> None:
    rows = rows_of("maxtext")
    text = "".join(
        line for line in (DOCUMENTS / "maxtext_keys.txt").read_text().splitlines(True) if line[0] != "#"
    )
    assert [name for name in text.split() if name not in rows] == []
    for document in ("muddformer", "tokenformer"):
        words = [word for command in documents.commands(document) for word in command.words]
        names = {word.partition("=")[0] for word in words if "=" in word} - {""}
        assert names <= rows.keys()


@pytest.mark.parametrize(
    "words", [MUDD, TOKENS, DENSE, (*MUDD[:3], "model_name=Llama2Medium")], ids=lambda w: w[0]
)
def test_settings_of_a_model_lead_back_to_it(words: tuple[str, ...]) -> None:
    model = resolved(words).config.model
    if isinstance(model, TransformerPPConfig | MUDDFormerConfig):
        settings, block = MuddformerJax().original_config(model), "llama2"
        settings |= {
            f"base_{n}": settings[n] for n in ("emb_dim", "num_query_heads", "num_kv_heads", "mlp_dim")
        }
        settings["base_num_decoder_layers"] = settings["num_decoder_layers"]
    else:
        settings = TokenFormerJax().original_config(model)
        block = "gpt3" if model.block == "dense" else "tokenformer"
    assert model_of({**settings, "decoder_block": block}) == model


def other_value(row: Row) -> str:
    """Return a value that is neither the key's default nor accepted."""
    if isinstance(row.default, bool):
        return str(not row.default)
    return "other" if isinstance(row.default, str) else "7"


def words_for(row: Row, value: str) -> tuple[str, ...]:
    return (*(TOKENS if row.name.startswith("ddw_gen") else MUDD), f"{row.name}={value}")


@pytest.mark.parametrize(
    "row", [row for row in rows_of("maxtext").values() if row.fate == "refused"], ids=lambda row: row.name
)
def test_a_refused_key_names_itself_and_the_way_out(row: Row) -> None:
    with pytest.raises(UserError) as error:
        resolved(words_for(row, other_value(row)))
    text = str(error.value)
    assert text.startswith(f"[maxtext] {row.name}=") and text.endswith(f": not supported; {row.text}")
    for value in (row.default, *row.allowed):
        resolved(words_for(row, str(value)))


@pytest.mark.parametrize(
    "row", [row for row in rows_of("maxtext").values() if row.fate == "noted"], ids=lambda row: row.name
)
def test_a_noted_key_is_one_line_and_changes_nothing(row: Row) -> None:
    value = "gpu" if row.name == "hardware" else other_value(row)
    plain, found = resolved(words_for(row, value)[:-1]), resolved(words_for(row, value))
    assert outcome(found) == outcome(plain)
    word = f"{row.name}={value}"
    assert [note for note in found.notes if note.startswith(word)] == [f"{word}: {row.text}"]
