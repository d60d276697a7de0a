"""mu-Transformer's grammar: keys, options, ConfigDict files, the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import documents
from mu_commands import SMALL, resolved
from mudd_core.base.errors import UserError
from mudd_core.cli import main as cli
from mudd_core.config import Config, check_config, read_config
from mudd_core.config.fields import walk
from mudd_core.programs.detect import program_of
from mudd_core.programs.program import CommandLine, program_named, rows_of
from mudd_core.programs.row import COMMAND, WORKDIR, Row


def values(config: Config) -> dict[str, object]:
    return {info.path: info.value for info in walk(config)}


def test_the_documents_commands_come_to_the_committed_configs() -> None:
    assert documents.outcomes("mu_transformer") == documents.kept("mu_transformer")


def test_tiny_has_the_originals_numbers_at_width_128_and_ours_stays() -> None:
    tiny, small, ours = (read_config(name) for name in ("mu_transformer/configs/tiny.py", SMALL, "mup/tiny"))
    assert tiny == small and tiny.model.n_layer == 24 and tiny.train.steps == 125000
    assert ours.name == "mup-tiny" and ours.model.n_layer == 4


def test_the_second_command_of_the_document() -> None:
    words = [
        f"--config.{word}"
        for word in (
            "tokens_per_global_batch=131072",
            "sequence_len=1024",
            "n_layer=24",
            "n_pretrain_step=125000",
            "n_warmup_step=10000",
            "lr_max=0.03",
        )
    ]
    found = resolved(*words, config="mu_transformer/configs/tiny.py", mode="train", workdir="/tmp/w")
    config = found.config
    assert (config.train.batch_size, config.train.seq_len, config.train.steps) == (128, 1024, 125000)
    assert (config.optim.lr, config.optim.warmup_steps, config.model.d_model) == (0.03, 10000, 128)
    assert found.workdir.startswith("/tmp/w/mutransformer_c4_default_t0_d")
    assert found.workdir.endswith("_b131072_a0.03_w0.0_m128_l24_nrelu_oadamw_rmup_slinear_p125000")
    assert config.name == Path(found.workdir).name and found.style == "mu_transformer"
    assert any("lr_max is read as lr_base" in note for note in found.notes)
    assert found.origins["train.seq_len"].word == (
        "--config.tokens_per_global_batch=131072 --config.sequence_len=1024"
    )
    check_config(config)


# A value for each mapped key other than its default.
_OTHER = """
    d_model=256 n_layer=2 d_base=64 d_head=64 ff_multiple=2.67 qk_scale=0.25 kv_mqa=True rotary_base=0
    attn_act_name=elu q_init=zero r_init=zero u_init=sp e_norm=true qk_norm=true norm_eps=1e-6
    norm_gains=true norm_gains_type=scalar proj_biases=true ff_act_name=swish act_name=gelu act_square=true
    dtype=other tokens_per_global_batch=4096 sequence_len=128 grad_acc_steps=2 n_pretrain_step=50000
    n_finetune_step=100 n_warmup_step=7 n_print_step=7 n_save_step=7 n_eval_step=7 no_checkpoint=true
    lr_base=0.5 lr_max=0.5 lr_schedule_name=cosine optim_name=lion optim_rule=abs_mup optim_beta1=0.8
    optim_beta2=0.98 optim_eps=1e-9 wd=0.1 use_iwd=true use_eps_scaling=true grad_clip=0.5
    hftr_tokenizer_instance=gpt2 hfds_identifier=wikitext hfds_config=fr hfds_datacol=body
    hfds_buffer_size=7 sow_intermediates=true sow_param_info=true sampling_method=topk sampling_nucleus=0.7
    sampling_topk=7 sampling_temp=0.7 sampling_max_len=7 sampling_prompt_len=7 rng_seed=7 seed=7
    rng_fold=true wb_enabled=true wb_run=abc n_mesh_rows=2 n_mesh_cols=2
"""
OTHER = dict(pair.split("=") for pair in _OTHER.split())
BESIDE = {
    "d_head": ("--config.qk_scale=0.015625",),
    "sampling_topk": ("--config.sampling_method=topk",),
    "sampling_temp": ("--config.sampling_method=temp",),
    "hfds_config": ("--config.hfds_identifier=c4",),
}


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


REFUSED = [
    row for row in rows_of("mu_transformer").values() if row.fate == "refused" and "mesh" not in row.name
]
NOTED = [row for row in rows_of("mu_transformer").values() if row.fate == "noted"]


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: row.name)
def test_a_refused_key_names_itself_and_the_way_out(row: Row) -> None:
    value = "bfloat16" if isinstance(row.default, str) else "2"
    with pytest.raises(UserError) as error:
        resolved(f"--config.{row.name}={value}")
    text = str(error.value)
    assert text.startswith(f"[mu_transformer] {row.name}") and row.text in text
    for taken in row.allowed:
        assert resolved(f"--config.{row.name}={taken}").config == resolved().config


@pytest.mark.parametrize("row", NOTED, ids=lambda row: row.name)
def test_a_noted_key_is_one_line_and_changes_nothing(row: Row) -> None:
    value = "false" if isinstance(row.default, bool) else "other"
    found = resolved(f"--config.{row.name}={value}")
    assert found.config == resolved().config
    assert f"--config.{row.name}={value}: {row.text}" in found.notes


@pytest.mark.parametrize(
    "spelling", ["--config.lr_base=0.25", "lr_base=0.25", "--lr-base 0.25", "--lr_base=0.25"]
)
def test_every_spelling_of_a_name_works(spelling: str) -> None:
    assert resolved(*spelling.split()).config.optim.lr == 0.25


def test_a_name_of_its_own_puts_a_config_of_family_mup_into_the_grammar() -> None:
    assert program_of(CommandLine("", "mup/tiny.py", ("--config.lr_base=0.1",))) is program_named(
        "mu_transformer"
    )
    assert program_of(CommandLine("", "mup/tiny.py", ("model.n_layer=2", "--seed", "3"))) is None
    assert program_of(CommandLine("", "tiny.py", ("--config.lr_base=0.1",))) is None
    found = resolved("lr_base=0.1", config="mup/tiny.py", workdir="runs/sweep")
    assert (
        found.config.train.batch_size == 8 and found.config.sample.top_p == 0.95
    )  # settings that nobody typed have mudd_core's values
    assert "_b2048_a0.1_w0.0_m128_l4_" in found.workdir


def test_our_fields_work_beside_its_keys() -> None:
    found = resolved("lr_base=0.1", "data.path=my", "optim.clip=2", "--threads", "3")
    assert (found.config.data.path, found.config.optim.clip, found.config.train.threads) == ("my", 2.0, 3)
    with pytest.raises(UserError, match=r"optim\.lr is given twice: lr_base=0\.1 and optim\.lr=0\.2"):
        resolved("lr_base=0.1", "optim.lr=0.2")


def test_accumulated_gradients_are_one_larger_batch() -> None:
    words = (
        "grad_acc_steps=4",
        "n_pretrain_step=400",
        "n_finetune_step=40",
        "n_warmup_step=80",
        "n_print_step=8",
        "n_save_step=40",
    )
    found = resolved(*words)
    train, optim = found.config.train, found.config.optim
    assert (train.batch_size, train.steps, train.log_every, train.save_every) == (4096, 110, 2, 10)
    assert (optim.schedule_steps, optim.warmup_steps, train.eval_every) == (100, 20, 10)
    assert (
        found.config.eval.batch_size == 1024
        and "grad_acc_steps=4: an update processes 4 batches" in found.notes[0]
    )
    assert found.config.data.held_batch == 1024
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
    assert not second.config.start.load_parameters_path  # there is no checkpoint to resume from yet
    (Path(first.workdir) / "checkpoints").mkdir(parents=True)
    start = resolved(*words, mode="train", workdir=str(tmp_path)).config.start
    assert start.load_parameters_path == first.workdir and start.keep_optimizer


BAD = {
    "n_layr=2": "unknown name 'n_layr'; did you mean 'n_layer'",
    "--config.n_layr=2": "unknown name 'n_layr'; did you mean 'n_layer'",
    "lr_base=1 --config.lr_base=2": "lr_base is given twice: lr_base=1 and --config.lr_base=2",
    "lr_base=1 lr_max=2": "type only one of them",
    "n_layer=two": "n_layer: expected a whole number, got 'two'",
    "n_layer=2.5": "n_layer: expected a whole number, got '2.5'",
    "lr_base=fast": "lr_base: expected a number, got 'fast'",
    "e_norm=2": "e_norm: expected true or false, got '2'",
    "sequence_len=100": "tokens_per_global_batch: expected a multiple of sequence_len (100), got 262144",
    "grad_acc_steps=3": "expected a multiple of grad_acc_steps (3)",
    "dtype=float16": "[mu_transformer] dtype: expected one of float32, bfloat16, got 'float16'",
    "param_dtype=bfloat16": "param_dtype=bfloat16: not supported",
    "n_mesh_rows=8 n_mesh_cols=2": "= 16, but 1 rank was started: start --ranks=16",
    "n_mesh_rows=0": "n_mesh_rows: expected a whole number of at least 1, got 0",
    "n_ds_shard=4": "n_ds_shard=4: not supported; one process reads all",
    "act_name=gelu act_square=true": "act_square: expected act_name relu, got 'gelu'",
    "d_head=64": "so set model.qk_scale=0.015625",
    "sampling_method=beam": "expected nucleus, topk or temp, got 'beam'",
    "--lr-base": "--lr-base: expected a value after it",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_arguments_end_with_2(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli([f"--config={SMALL}", *words.split()]) == 2
    assert BAD[words] in capsys.readouterr().err


def test_a_mesh_of_one_and_a_shard_of_one_are_fine() -> None:
    found = resolved("n_mesh_rows=1", "n_mesh_cols=1", "n_ds_shard=1", "force_download=False")
    assert "force_download=False: files that are on this machine are never downloaded again" in found.notes


def test_an_unknown_mode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli([f"--config={SMALL}", "--mode=validate_all"]) == 2
    assert "--mode: expected one of train, validation, test, sample" in capsys.readouterr().err


def test_the_trace_is_between_the_first_two_saves() -> None:
    assert resolved().config.train.profile == "5000:10000"
    assert resolved("n_save_step=7", "n_pretrain_step=100").config.train.profile == "7:14"
    assert (
        resolved("n_pretrain_step=100", "n_warmup_step=10").config.train.profile == ""
    )  # there is no such step
    assert resolved("train.profile=3:4").config.train.profile == "3:4"
    assert resolved().config.sample.window == "ring"
