"""Config: files, override grammars, checks, JSON, hash and what a resume may change."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import (
    Config,
    GPT2Config,
    OptimConfig,
    TrainConfig,
    TransformerPPConfig,
    check_config,
    config_hash,
    find_config,
    from_dict,
    merge_for_resume,
    shard_count,
    split_words,
    to_dict,
    to_json,
)
from mudd_core.config.describe import field_help, listing
from mudd_core.config.fields import replace_path, walk
from mudd_core.engine.engine import cut_batch
from mudd_core.engine.rates import learning_rate

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*.py"))


def test_all_promised_files_are_there() -> None:
    promised = {"small.py", "tiny.py", "transformer_pp/tiny.py", "transformer_pp/small.py"}
    promised |= {f"gpt2/{name}.py" for name in ("tiny", "small", "gpt2", "distilgpt2")}
    sizes = ("tiny", "small", "124m", "354m", "757m", "1_4b", "150m", "450m", "900m", "1_5b", "gpt2_baseline")
    promised |= {f"tokenformer/{name}.py" for name in sizes}
    assert promised <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_config_file_is_valid_and_survives_json(name: str) -> None:
    config = mc.load_config(name)
    again = from_dict(json.loads(to_json(config)))
    assert again == config
    assert config_hash(again) == config_hash(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.train = TrainConfig()  # type: ignore[misc]


def test_tokenformers_have_the_parameters_of_the_spec() -> None:
    """docs/maths/tokenformer.md, 4.1."""
    from mudd_core.run.booking import book
    from mudd_core.run.components import resolved_model

    sizes = {"124m": 123_569_664, "354m": 354_190_848, "757m": 753_796_608, "1_4b": 1_309_705_728,
             "gpt2_baseline": 123_689_472}  # fmt: skip
    for name, count in sizes.items():
        config = mc.load_config(f"tokenformer/{name}")
        assert book(resolved_model(config, 50304), config, only=True)[0].n_parameters == count


@pytest.mark.parametrize(
    ("name", "first", "peak_at"),
    [
        ("muddformer/mudd_llama2_medium", 0.0, 135),  # docs/maths/optimizers.md, 7.1
        ("muddformer/muddpythia_1_4b", 0.0, 1430),
        ("tokenformer/124m", 0.0, 6000),  # docs/maths/tokenformer.md, 4.2
        ("tokenformer/450m", 0.0, 1430),
        ("mixtral/mixtral822", 1 / 63, 62),  # docs/maths/moe.md, 6.2: (t + 1) / (W + 1)
        ("mixtral/mixtral80", 1 / 8, 7),
    ],
)
def test_recipes_of_the_originals_warm_up_as_they_do(name: str, first: float, peak_at: int) -> None:
    config = mc.load_config(name)
    peak = config.optim.lr
    assert learning_rate(config, 0) == pytest.approx(first * peak)
    assert learning_rate(config, peak_at - 1) < peak and learning_rate(config, peak_at) == peak


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("tokenformer.yml", "tokenformer/124m"),
        ("MaxText/configs/gpt2.yml", "tokenformer/gpt2_baseline"),
        ("configs/tokenformer/1-5B_train_pile.yml", "tokenformer/1_5b"),
        ("Haiyang-W/TokenFormer-450M", "tokenformer/450m"),
    ],
)
def test_names_of_the_original_programs_find_our_configs(alias: str, name: str) -> None:
    assert mc.load_config(alias) == mc.load_config(name)


@pytest.mark.parametrize("name", ["tiny", "small"])
def test_root_files_reexport_the_family_ones(name: str) -> None:
    assert mc.load_config(f"{name}.py") == mc.load_config(f"transformer_pp/{name}.py")
    assert mc.load_config(ROOT / "configs" / f"{name}.py") == mc.load_config(name)


def test_published_shapes() -> None:
    gpt2, distil = mc.load_config("gpt2/gpt2.py").model, mc.load_config("gpt2/distilgpt2.py").model
    assert isinstance(gpt2, GPT2Config)
    assert (gpt2.n_layer, gpt2.d_model, gpt2.n_head, gpt2.vocab_size, gpt2.max_seq_len) == (
        12,
        768,
        12,
        50257,
        1024,
    )
    assert dataclasses.replace(gpt2, n_layer=6) == distil


@pytest.mark.parametrize(
    "words",
    [
        ["--config.train.steps=77"],
        ["--config.train.steps", "77"],
        ["train.steps=77"],
        ["config.train.steps=77"],
        ["+train.steps=77"],
        ["++train.steps=77"],
        ["--steps", "77"],
        ["--steps=77"],
        ["--max-steps", "77"],
        ["--train.steps=77"],
        ["train.steps=7.7e1"],
        ["train.steps=5", "train.steps=77"],
    ],
)
def test_all_grammars_say_the_same(words: list[str]) -> None:
    assert mc.load_config("tiny.py", words) == replace_path(mc.load_config("tiny.py"), "train.steps", 77)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["--batch_size=3"], "train.batch_size"),
        (["--batch-size", "3"], "train.batch_size"),
        (["--eval.batch-size", "3"], "eval.batch_size"),
        (["--seed=3"], "train.seed"),
        (["--vocab-size=300"], "data.vocab_size"),
        (["optim.learning_rate=3"], "optim.lr"),
        (["--optim.learning-rate=3"], "optim.lr"),
        (["--config.train.max_steps", "3"], "train.steps"),
    ],
)
def test_an_alias_or_a_leaf_of_several_sections_names_one_field(words: list[str], path: str) -> None:
    value = 300 if "vocab" in path else 3
    assert mc.load_config("tiny.py", words) == replace_path(mc.load_config("tiny.py"), path, value)


def test_a_command_looks_at_its_own_section_first() -> None:
    (found,) = split_words(["--seed=3"], Config(), first="sample")
    assert found.path == "sample.seed"


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--version", ""),
        ("--model.dropout=1", ""),
        ("--hidden-size=3", ""),
        ("--lerning-rate=3", "--learning-rate"),
        ("--train.lr=3", "optim.lr"),
        ("--num-layers=3", "--n-layer"),
        ("optim.lerning_rate=3", "optim.lr"),
        ("trian.stepz=3", "train.steps"),
        ("eval.max_batch_size=3", "eval.batch_size"),
        ("dropout=3", ""),
    ],
)
def test_suggestions_are_fair_or_none(word: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", [word])
    assert ("did you mean" in str(caught.value)) == bool(hint)
    assert f"did you mean '{hint}'?" in str(caught.value) or not hint


def test_values_follow_the_type_of_the_field() -> None:
    config = mc.load_config(
        "tiny.py", ["data.path=007", "optim.lr=3", "model.tie_embeddings=on", "name='a=b'"]
    )
    assert config.data.path == "007"
    assert config.optim.lr == 3.0 and isinstance(config.optim.lr, float)
    assert config.model.tie_embeddings is True
    assert config.name == "a=b"
    assert mc.load_config("tiny.py", ["--debug-nonfinite", "--steps", "9"]).train.debug_nonfinite is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.stesp=3"], "did you mean 'train.steps'"),
        (["--config.train.stesp=3"], "did you mean 'train.steps'"),
        (["+train.stesp=3"], "did you mean 'train.steps'"),
        (["--step", "3"], "did you mean '--steps'"),
        (["steps=3"], "did you mean 'train.steps'"),
        (["model.learning_rte=3"], "unknown field 'model.learning_rte'"),
        (["train=3"], "unknown field 'train'"),
        (["train.steps=ten"], "train.steps: expected a whole number, got 'ten'"),
        (["train.steps=1.5"], "train.steps: expected a whole number"),
        (["train.steps="], "train.steps: expected a whole number"),
        (["optim.lr=nan"], "optim.lr: expected a finite number"),
        (["model.tie_embeddings=2"], "expected true or false"),
        (["train.steps"], "neither a command nor name=value"),
        (["~train.steps"], "cannot be removed"),
        (["--steps"], "expected a value behind it"),
        (["train.steps=0"], "train.steps: expected at least 1, got 0"),
        (["optim.schedule=cos"], "expected one of constant, cosine, linear, wsd"),
        (["model.d_model=130"], "multiple of model.n_head (4), got 130"),
        (["model.n_kv_head=3"], "divisor of model.n_head"),
        (["model.d_head=15"], "even width"),
        (["train.logical_shards=6"], "power of two, got 6"),
        (["train.logical_shards=2048"], "at most 1024, got 2048"),
        (["train.batch_size=12", "train.micro_batch_size=2"], "12 is no multiple of the 8 shards"),
        (["train.micro_batch_size=-1"], "train.micro_batch_size: expected at least 0"),
        (["optim.beta2=1"], "less than 1"),
        (["model.max_seq_len=64"], "at most model.max_seq_len (64), got 128"),
        (["model.family=gpt2"], "expected one of transformer_pp"),
        (["name=../x"], "plain folder name"),
        (["train.batch_size=9223372036854775807"], "train.batch_size: expected at most 2147483647"),
        (["model.n_layer=2147483647"], "model.n_layer: expected at most 10000"),
        (["train.batch_size=100000000"], "train.batch_size: expected at most 2147483647 tokens"),
        (["eval.batch_size=100000000"], "eval.batch_size: expected at most 2147483647 tokens"),
        (["train.steps=9223372036854775808"], "train.steps: expected at most 2147483647"),
        (["train.seq_len=1600001"], "train.seq_len: expected at most 1600000"),
        (["train.seed=18446744073709551616"], "train.seed: expected at most 18446744073709551615"),
        (["sample.seed=18446744073709551616"], "sample.seed: expected at most 18446744073709551615"),
        (["train.threads=1000"], "train.threads: expected at most 256"),
        (["sample.top_p=0"], "sample.top_p: expected more than 0"),
    ],
)
def test_mistakes_are_named(words: list[str], says: str) -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", words)
    assert says in str(caught.value)
    assert isinstance(caught.value, ValueError) and caught.value.exit_code == 2


def test_all_broken_rules_come_at_once() -> None:
    with pytest.raises(UserError) as caught:
        mc.load_config("tiny.py", ["train.steps=0", "optim.clip=-1"])
    assert "train.steps" in str(caught.value) and "optim.clip" in str(caught.value)


def test_types_set_in_python_are_checked_too() -> None:
    for wrong in (TrainConfig(steps=2.5), TrainConfig(steps=True), TrainConfig(debug_nonfinite=1)):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="expected"):
            check_config(Config(train=wrong))
    check_config(Config(optim=OptimConfig(lr=1)))  # a whole number is a number


def test_missing_config_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"did you mean 'small\.py'"):
        find_config("smal.py")


def test_bad_config_files(tmp_path: Path) -> None:
    cases = {
        "a.py": ("x = 1\n", "expected a function get_config"),
        "b.py": ("def get_config():\n    return 3\n", "got int"),
        "c.py": ("import no_such_module_anywhere\n", "ModuleNotFoundError"),
        "d.json": ("{", "d.json"),
        "e.json": ('{"model": {"family": "gpt3"}}', "model.family"),
        "f.json": ('{"train": {"stepz": 1}}', "did you mean 'steps'"),
        "g.json": ("[]", "expected a JSON object"),
        "h.json": ("[" * 100_000, "h.json"),
        "i.json": ('{"optim": {"lr": 1' + "0" * 400 + "}}", "optim.lr: expected a number of at most 64 bits"),
    }
    for name, (text, says) in cases.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=says):
            mc.load_config(tmp_path / name)
    assert not list(tmp_path.glob("**/__pycache__"))


def test_a_config_that_raises_shows_the_frames_of_its_author(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("def width(x):\n    return 64 // x\n")
    file = tmp_path / "mine.py"
    text = "import sys\nsys.path.insert(0, {folder!r})\nfrom sizes import width\ndef get_config():\n    return {call}\n"
    cases = {
        "width(0)": ("mine.py", "sizes.py", "return 64 // x", "ZeroDivisionError: "),
        "__import__('mudd_core.config').config.TrainConfig(stepz=3)": ("mine.py", "line 5", "stepz"),
        "sys.exit('no data here')": ("mine.py", "SystemExit: no data here"),
        "1 +": ("mine.py", "line 5", "SyntaxError"),
    }
    for call, shown in cases.items():
        file.write_text(text.format(folder=str(tmp_path), call=call))
        with pytest.raises(UserError) as caught:
            mc.load_config(file)
        told = str(caught.value)
        assert told.startswith(f"[config] {file} failed:\n") and all(part in told for part in shown)
        assert "importlib" not in told and "load.py" not in told and "schema.py" not in told


@pytest.mark.parametrize("name", ["", ".", "/", "..", "x" * 300])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(UserError, match="no config file"):
        find_config(name)


def test_two_names_of_a_precision_are_one() -> None:
    one, other = (mc.load_config("tiny.py", ["--dtype", name]) for name in ("bf16", "bfloat16"))
    assert one == other and other.train.precision == "bf16"
    assert mc.load_config("tiny.py", ["--dtype", "float32"]) == mc.load_config("tiny.py")


def test_json_config_loads(tmp_path: Path) -> None:
    config = mc.load_config("gpt2/tiny.py")
    (tmp_path / "c.json").write_text(to_json(config))
    assert mc.load_config(tmp_path / "c.json") == config


def test_overrides_must_be_a_list() -> None:
    with pytest.raises(TypeError, match="expected a list"):
        mc.load_config("tiny.py", "train.steps=3")


def test_resume_takes_free_fields_and_lists_the_others() -> None:
    saved = mc.load_config("tiny.py")
    asked = mc.load_config("tiny.py", ["train.log_every=3", "train.threads=2", "train.stop_at=5"])
    merged, changed = merge_for_resume(saved, asked)
    assert merged == asked and config_hash(merged) == config_hash(saved)
    assert [change.path for change in changed] == ["train.log_every", "train.stop_at", "train.threads"]
    other = mc.load_config("tiny.py", ["train.steps=400", "optim.lr=1", "train.log_every=3"])
    assert config_hash(other) != config_hash(saved)
    with pytest.raises(UserError) as caught:
        merge_for_resume(saved, other)
    assert f"train.steps: saved {saved.train.steps}, asked 400" in str(caught.value)
    assert "optim.lr" in str(caught.value) and "log_every" not in str(caught.value)
    with pytest.raises(UserError, match=r"model\.family"):
        merge_for_resume(saved, mc.load_config("gpt2/tiny.py"))


@pytest.mark.parametrize("model", [TransformerPPConfig(), GPT2Config()])
def test_hash_sees_exactly_the_fields_that_shape_training(model: TransformerPPConfig | GPT2Config) -> None:
    config = Config(model=model)
    for info in walk(config):
        new = f"{info.value}x" if isinstance(info.value, str) else info.value + 1
        changed = replace_path(config, info.path, not info.value if info.kind is bool else new)
        assert (config_hash(changed) == config_hash(config)) == info.free_on_resume, info.path


def test_every_field_is_explained() -> None:
    for model in (TransformerPPConfig(), GPT2Config()):
        config = Config(model=model)
        text, table = field_help(config), listing(config)
        for info in walk(config):
            assert len(info.text) > 8, info.path
            assert f"{info.path} = " in text and info.text.split()[0] in text
            assert info.path.rpartition(".")[2] + "=" in table
            numeric = info.kind in (int, float)
            assert not numeric or info.low is not None, f"{info.path} has no lower bound"
            assert info.kind is not int or info.unit or "seed" in info.path, f"{info.path} has no unit"


def test_shards_are_capped_by_the_batch() -> None:
    def shards(batch: int, asked: int = 8) -> int:
        return shard_count(Config(train=TrainConfig(batch_size=batch, logical_shards=asked)))

    assert [shards(batch) for batch in (1, 2, 3, 4, 8, 64)] == [1, 2, 2, 4, 8, 8]
    assert shards(64, 2) == 2


@given(st.lists(st.text(max_size=20), max_size=4))
def test_any_words_give_overrides_or_a_usage_error(words: list[str]) -> None:
    with contextlib.suppress(UserError):
        split_words(words, Config())


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*to_dict(Config()), "family"]), inner)
    ),
    max_leaves=8,
)


@given(json_like)
def test_any_json_gives_a_checked_config_or_a_usage_error(raw: object) -> None:
    with contextlib.suppress(UserError):
        check_config(from_dict(raw))


def test_config_needs_neither_core_nor_numpy() -> None:
    code = "import mudd_core as mc, sys; mc.load_config('tiny.py'); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "False"


def test_the_micro_batch_of_earlier_versions_counts_shards(capsys: pytest.CaptureFixture[str]) -> None:
    assert TrainConfig(batch_size=64, logical_shards=16, micro_batch=2).micro_batch_size == 8
    assert (
        TrainConfig(batch_size=64, logical_shards=16, micro_batch=16).micro_batch_size == 0
    )  # the whole batch
    config = mc.load_config("tiny.py", ["train.micro_batch=2", "train.batch_size=32"])  # in any order
    assert config.train.micro_batch_size == 8
    assert "train.micro_batch_size=8 counts sequences" in capsys.readouterr().out
    saved = to_dict(config)
    del saved["train"]["micro_batch_size"]
    assert from_dict({**saved, "train": {**saved["train"], "micro_batch": 2}}) == config


@pytest.mark.parametrize(
    ("batch", "shards", "size", "runs"),
    [
        (8, 8, 0, 1),
        (8, 8, 8, 1),
        (8, 8, 99, 1),
        (8, 8, 1, 8),
        (8, 8, 3, 4),
        (32, 8, 1, 8),
        (32, 8, 8, 4),
        (5, 8, 5, 1),
    ],
)
def test_runs_of_a_micro_batch_size(batch: int, shards: int, size: int, runs: int) -> None:
    assert cut_batch(batch, shards, size)[0] == runs
