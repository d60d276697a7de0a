"""mu-Transformer's grammar: keys, flags, ConfigDict files, the folder of a run."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import documents
from mudd_core.base.errors import UserError
from mudd_core.cli import main as cli
from mudd_core.config import Config, check_config, read_config
from mudd_core.config.fields import walk
from mudd_core.config.keys import COMMAND, WORKDIR, rows_of
from mudd_core.data.tokenize import train_bpe
from mudd_core.grammars.asked import Asked
from mudd_core.grammars.detect import grammar_of, resolve
from mudd_core.grammars.load import load_config
from mudd_core.grammars.resolved import Resolved
from mudd_core.run.continuations import prompts_of

SMALL = "mu_transformer/configs/small.py"


def resolved(*words: str, config: str = SMALL, command: str = "", **options: str) -> Resolved:
    found = resolve(
        Asked(command, config, words, {f"--{name}": value for name, value in options.items()}, {})
    )
    assert found is not None and found.grammar == "mu_transformer"
    return found


def values(config: Config) -> dict[str, object]:
    return {info.path: info.value for info in walk(config)}


def test_the_documents_commands_come_to_the_committed_configs() -> None:
    assert documents.outcomes("mu_transformer") == json.loads(
        (documents.FOLDER / "mu_transformer.json").read_text()
    )


def test_tiny_has_the_originals_numbers_at_width_128_and_ours_stays() -> None:
    tiny, small, ours = (read_config(name) for name in ("mu_transformer/configs/tiny.py", SMALL, "mup/tiny"))
    assert tiny == small and tiny.model.n_layer == 24 and tiny.train.steps == 125000
    assert ours.name == "mup-tiny" and ours.model.n_layer == 4


def test_the_second_command_of_the_document() -> None:
    words = [f"--config.{word}" for word in (
        "tokens_per_global_batch=131072", "sequence_len=1024", "n_layer=24", "n_pretrain_step=125000",
        "n_warmup_step=10000", "lr_max=0.03",
    )]  # fmt: skip
    found = resolved(*words, config="mu_transformer/configs/tiny.py", mode="train", workdir="/tmp/w")
    config = found.config
    assert (config.train.batch_size, config.train.seq_len, config.train.steps) == (128, 1024, 125000)
    assert (config.optim.lr, config.optim.warmup_steps, config.model.d_model) == (0.03, 10000, 128)
    assert found.workdir.startswith("/tmp/w/mutransformer_c4_default_t0_d")
    assert found.workdir.endswith("_b131072_a0.03_w0.0_m128_l24_nrelu_oadamw_rmup_slinear_p125000")
    assert config.name == Path(found.workdir).name and found.style == "mu_transformer"
    assert any("lr_max is taken as lr_base" in note for note in found.notes)
    assert found.origins["train.seq_len"].word == (
        "--config.tokens_per_global_batch=131072 --config.sequence_len=1024"
    )
    check_config(config)


# A value of each mapped key that is not the default.
OTHER = {
    "d_model": "256", "n_layer": "2", "d_base": "64", "d_head": "64", "ff_multiple": "2.67", "qk_scale": "0.25",
    "kv_mqa": "True", "rotary_base": "0", "attn_act_name": "elu", "q_init": "zero", "r_init": "zero", "u_init": "sp",
    "e_norm": "true", "qk_norm": "true", "norm_eps": "1e-6", "norm_gains": "true", "norm_gains_type": "scalar",
    "proj_biases": "true", "ff_act_name": "swish", "act_name": "gelu", "act_square": "true", "dtype": "other",
    "tokens_per_global_batch": "4096", "sequence_len": "128", "grad_acc_steps": "2", "n_pretrain_step": "50000",
    "n_finetune_step": "100", "n_warmup_step": "7", "n_print_step": "7", "n_save_step": "7", "n_eval_step": "7",
    "no_checkpoint": "true", "lr_base": "0.5", "lr_max": "0.5", "lr_schedule_name": "cosine", "optim_name": "lion",
    "optim_rule": "abs_mup", "optim_beta1": "0.8", "optim_beta2": "0.98", "optim_eps": "1e-9", "wd": "0.1",
    "use_iwd": "true", "use_eps_scaling": "true", "grad_clip": "0.5", "hftr_tokenizer_instance": "gpt2",
    "hfds_identifier": "wikitext", "hfds_config": "fr", "hfds_datacol": "body", "hfds_buffer_size": "7",
    "sow_intermediates": "true", "sow_param_info": "true", "sampling_method": "topk", "sampling_nucleus": "0.7",
    "sampling_topk": "7", "sampling_temp": "0.7", "sampling_max_len": "7", "rng_seed": "7", "seed": "7",
    "rng_fold": "true", "wb_enabled": "true", "wb_run": "abc",
}  # fmt: skip
BESIDE = {
    "d_head": ("--config.qk_scale=0.015625",), "sampling_topk": ("--config.sampling_method=topk",),
    "sampling_temp": ("--config.sampling_method=temp",),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [row.name for row in rows_of("mu_transformer").values() if row.fate == "mapped"]
)
def test_each_mapped_key_changes_its_fields(name: str) -> None:
    row = rows_of("mu_transformer")[name]
    fields = [path for path in row.fields if path not in (COMMAND, WORKDIR)]
    if not fields:
        assert name in ("mode", "experiment_group", "load_suffix", "save_suffix", "is_sweep")  # tested below
        return
    beside, value = BESIDE.get(name, ()), OTHER[name]
    if name == "dtype":
        value = {"fp32": "bfloat16", "bf16": "float32"}[resolved().config.train.precision]
    before, after = resolved(*beside), resolved(*beside, f"--config.{name}={value}")
    old, new = values(before.config), values(after.config)
    changed = {path for path in new if old.get(path) != new[path]} - {"name", "train.profile"}
    assert changed & set(fields), (name, changed)
    assert all(after.origins[path].word for path in changed)


@pytest.mark.parametrize(
    "spelling", ["--config.lr_base=0.25", "lr_base=0.25", "--lr-base 0.25", "--lr_base=0.25"]
)
def test_every_spelling_of_a_name_works(spelling: str) -> None:
    assert resolved(*spelling.split()).config.optim.lr == 0.25


def test_a_name_of_its_own_puts_a_config_of_family_mup_into_the_grammar() -> None:
    assert grammar_of(Asked("", "mup/tiny.py", ("--config.lr_base=0.1",))) == "mu_transformer"
    assert grammar_of(Asked("", "mup/tiny.py", ("model.n_layer=2", "--seed", "3"))) == ""
    assert grammar_of(Asked("", "tiny.py", ("--config.lr_base=0.1",))) == ""
    found = resolved("lr_base=0.1", config="mup/tiny.py", workdir="runs/sweep")
    assert (
        found.config.train.batch_size == 8 and found.config.sample.top_p == 0.95
    )  # what nobody typed is ours
    assert "_b2048_a0.1_w0.0_m128_l4_" in found.workdir


def test_our_fields_work_beside_its_keys() -> None:
    found = resolved("lr_base=0.1", "data.path=my", "optim.clip=2", "--threads", "3")
    assert (found.config.data.path, found.config.optim.clip, found.config.train.threads) == ("my", 2.0, 3)
    with pytest.raises(UserError, match=r"optim\.lr is given twice: lr_base=0\.1 and optim\.lr=0\.2"):
        resolved("lr_base=0.1", "optim.lr=0.2")


def test_accumulated_gradients_are_one_larger_batch() -> None:
    words = ("grad_acc_steps=4", "n_pretrain_step=400", "n_finetune_step=40", "n_warmup_step=80", "n_print_step=8",
             "n_save_step=40")  # fmt: skip
    found = resolved(*words)
    train, optim = found.config.train, found.config.optim
    assert (train.batch_size, train.steps, train.log_every, train.save_every) == (4096, 110, 2, 10)
    assert (optim.schedule_steps, optim.warmup_steps, train.eval_every) == (100, 20, 10)
    assert (
        found.config.eval.batch_size == 1024
        and "grad_acc_steps=4: an update takes 4 batches" in found.notes[0]
    )
    with pytest.raises(UserError, match=r"n_save_step: expected a multiple of grad_acc_steps \(4\), got 42"):
        resolved("grad_acc_steps=4", "n_save_step=42")


def test_finetune_steps_are_behind_the_schedule() -> None:
    config = resolved("n_pretrain_step=100", "n_finetune_step=20").config
    assert (config.train.steps, config.optim.schedule_steps) == (120, 100)
    assert resolved("n_pretrain_step=100").config.optim.schedule_steps == 0


def test_a_folded_seed_depends_on_the_four_sizes() -> None:
    seeds = [
        resolved("rng_fold=true", *words).config.train.seed
        for words in (
            (),
            ("n_layer=2",),
            ("d_model=256",),
            ("n_pretrain_step=7",),
            ("tokens_per_global_batch=4096",),
        )
    ]
    assert len({*seeds, resolved().config.train.seed}) == 6
    assert seeds[0] == resolved("rng_fold=true", "lr_base=0.1").config.train.seed
    assert resolved("rng_seed=5").config.train.seed == resolved("--seed", "5").config.train.seed == 5


def test_sampling_methods_are_alone() -> None:
    sample = resolved().config.sample
    assert (sample.temperature, sample.top_k, sample.top_p, sample.max_tokens) == (1.0, 0, 0.8, 1024)
    sample = resolved("sampling_method=topk").config.sample
    assert (sample.temperature, sample.top_k, sample.top_p) == (1.0, 20, 1.0)
    sample = resolved("sampling_method=temp").config.sample
    assert (sample.temperature, sample.top_k, sample.top_p) == (0.1, 0, 1.0)


def test_modes_are_commands_and_suffixes_are_parts_of_the_name(tmp_path: Path) -> None:
    names = ("train", "validation", "test", "sample")
    found = [resolved(mode=mode, workdir=str(tmp_path)) for mode in names]
    assert [one.command for one in found] == ["train", "validate", "validate", "sample"]
    words = ("load_suffix=a", "save_suffix=b", "experiment_group=sweep")
    first, second = (resolved(*words, mode=mode, workdir=str(tmp_path)) for mode in ("sample", "train"))
    assert "_c4_sweep_t0_" in first.workdir
    assert first.workdir.endswith("_a") and second.workdir.endswith("_b")
    assert not second.config.start.load_parameters_path  # there is nothing to go on from yet
    (Path(first.workdir) / "checkpoints").mkdir(parents=True)
    start = resolved(*words, mode="train", workdir=str(tmp_path)).config.start
    assert start.load_parameters_path == first.workdir and start.keep_optimizer


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
    assert config.optim.lr == 1.0 and config.train.steps == 125000  # the rest is that of base.py
    assert f"{tmp_path / 'mine.py'}: keys that mean nothing here: own" in found.notes
    assert any(
        note.startswith("n_mesh_rows=32, n_mesh_cols=1 of the file mean nothing") for note in found.notes
    )
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
    with pytest.raises(UserError, match=r"pip install 'mudd-core\[seeds\]'"):
        resolved(config=str(tmp_path / "mine.py"))


BAD = {
    "n_layr=2": "unknown name 'n_layr'; did you mean 'n_layer'",
    "--config.n_layr=2": "unknown name 'n_layr'; did you mean 'n_layer'",
    "lr_base=1 --config.lr_base=2": "lr_base is given twice: lr_base=1 and --config.lr_base=2",
    "lr_base=1 lr_max=2": "give one of them",
    "n_layer=two": "n_layer: expected a whole number, got 'two'",
    "n_layer=2.5": "n_layer: expected a whole number, got '2.5'",
    "lr_base=fast": "lr_base: expected a number, got 'fast'",
    "e_norm=2": "e_norm: expected true or false, got '2'",
    "sequence_len=100": "tokens_per_global_batch: expected a multiple of sequence_len (100), got 262144",
    "grad_acc_steps=3": "expected a multiple of grad_acc_steps (3)",
    "dtype=float16": "dtype: expected one of float32, bfloat16, got 'float16'",
    "param_dtype=bfloat16": "param_dtype=bfloat16: not supported",
    "n_mesh_rows=8 n_mesh_cols=2": "8 x 2 = 16 processes by --ranks",
    "n_mesh_rows=128": "128 x 1 = 128 processes",
    "n_ds_shard=4": "n_ds_shard=4: not supported; one process reads all",
    "act_name=gelu act_square=true": "act_square: expected act_name relu, got 'gelu'",
    "d_head=64": "so set model.qk_scale=0.015625",
    "sampling_method=beam": "expected nucleus, topk or temp, got 'beam'",
    "--lr-base": "--lr-base: expected a value behind it",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_end_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli([f"--config={SMALL}", *words.split()]) == 2
    assert BAD[words] in capsys.readouterr().err


def test_a_mesh_of_one_and_a_shard_of_one_are_fine() -> None:
    found = resolved("n_mesh_rows=1", "n_mesh_cols=1", "n_ds_shard=1", "force_download=False")
    assert "force_download=False: data are read where they are" in found.notes


def test_an_unknown_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli([f"--config={SMALL}", "--mode=validate_all"]) == 2
    assert "--mode: expected one of train, validation, test, sample" in capsys.readouterr().err


def test_a_sweep_of_two_rates_in_one_folder(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ("d_model=16", "d_base=16", "d_head=8", "qk_scale=0.125", "n_layer=1", "sequence_len=32",
             "tokens_per_global_batch=128", "n_pretrain_step=4", "n_warmup_step=1", "n_print_step=2", "n_save_step=2",
             "n_eval_step=1")  # fmt: skip
    data = (f"data.path={tiny_text}", "data.tokenizer=bytes", f"data.cache_dir={tiny_text.parent / 'cache'}")
    words = [f"--config.{word}" for word in shape]
    common = ["--config=mup/tiny.py", f"--workdir={tmp_path}", *data, "--threads", "1", *words]
    for rate in ("0.25", "0.015625"):
        assert cli([*common, "--mode=train", f"--config.lr_base={rate}"]) == 0
        assert f"_a{rate}_w0.0_m16_l1_" in capsys.readouterr().out
    runs = sorted(path.name for path in tmp_path.iterdir())
    assert not any((tmp_path / run / "sweep.tsv").exists() for run in runs)
    assert len(runs) == 2 and all((tmp_path / run / "summary.json").is_file() for run in runs)
    assert all(
        list((tmp_path / run).glob("plugins/profile/*/*.trace.json.gz")) for run in runs
    )  # steps 2 to 4
    losses = [json.loads((tmp_path / run / "summary.json").read_text())["val_loss"] for run in runs]
    assert losses[0] != losses[1]
    assert cli([*common, "--mode=validation", "--config.lr_base=0.25"]) == 0
    assert "validation loss" in capsys.readouterr().out
    assert cli([*common, "--mode=sample", "--config.lr_base=0.25", "sample.max_tokens=5"]) == 0
    assert re.fullmatch(r"(PROMPT:\n.*?\nCONTINUATION:\n.*?\n\n){4}", capsys.readouterr().out, re.DOTALL)


def test_the_documents_data_set_and_tokenizer_end_to_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [
        json.dumps({"text": f"{number} rows of a few words " * (number % 5 + 1)}) for number in range(90)
    ]
    for split, part in (("train", texts[:60]), ("validation", texts[60:75]), ("test", texts[75:])):
        (tmp_path / "c4" / "en" / split).mkdir(parents=True)
        (tmp_path / "c4" / "en" / split / "a.jsonl").write_text("\n".join(part) + "\n")
    (tmp_path / "t5-base").mkdir()
    (tmp_path / "t5-base" / "tokenizer.json").write_bytes(train_bpe(["\n".join(texts).encode()], 1, 300))
    here = {
        "t5-base": str(tmp_path / "t5-base"),
        "c4": str(tmp_path / "c4"),
        "/tmp/workdir": str(tmp_path / "w"),
    }
    words = [
        f"{name}={here.get(value, value)}"
        for name, _, value in (word.partition("=") for word in documents.commands("mu_transformer")[2].words)
        if name != "--mode"
    ]
    shape = ("d_model=16", "d_base=16", "d_head=8", "qk_scale=0.125", "n_layer=1", "sequence_len=32",
             "tokens_per_global_batch=128", "n_pretrain_step=4", "n_warmup_step=1", "n_print_step=2", "n_save_step=2",
             "sampling_max_len=40")  # fmt: skip
    words += [
        *(f"--config.{word}" for word in shape),
        f"data.cache_dir={tmp_path / 'cache'}",
        "train.threads=1",
    ]
    for mode in ("train", "validation", "sample"):
        assert cli([*words, f"--mode={mode}"]) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert re.search(r"^Eval loss: \d+\.\d+$", told, re.MULTILINE)
    assert "d_model: 16\n" in told and "{'step': 2, 'sec_per_step': " in told and "CONTINUATION:" in told
    (run,) = (tmp_path / "w").iterdir()
    assert run.name.startswith("mutransformer_c4_default_t0_")
    assert json.loads((run / "config.json").read_text())["data"]["pipeline"] == "rows"


def test_the_trace_is_between_the_first_two_saves() -> None:
    assert resolved().config.train.profile == "5000:10000"
    assert resolved("n_save_step=7", "n_pretrain_step=100").config.train.profile == "7:14"
    assert (
        resolved("n_pretrain_step=100", "n_warmup_step=10").config.train.profile == ""
    )  # there is no such step
    assert resolved("train.profile=3:4").config.train.profile == "3:4"
    assert resolved().config.sample.window == "ring"


def test_prompts_are_cut_where_their_document_ends() -> None:
    inputs = np.arange(12, dtype=np.int32).reshape(3, 4)
    targets = np.array([[1, 1, 1, 1], [1, -1, -1, -1], [-1, -1, -1, -1]], np.int32)
    assert prompts_of({"inputs": inputs, "targets": targets}, 3) == [[0, 1, 2], [4]]
