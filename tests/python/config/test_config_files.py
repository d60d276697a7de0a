"""Config files: all of them load and have the shapes in the papers, and errors name their mistakes."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.config import (
    GPT2Config,
    TokenFormerConfig,
    TrainConfig,
    config_hash,
    find_config,
    from_dict,
    to_json,
)
from mudd_core.engine.optimizer_groups import learning_rate
from places import ROOT

FILES = sorted(path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*.py"))


def test_all_promised_files_are_there() -> None:
    promised = {"small.py", "tiny.py", "transformer_pp/tiny.py", "transformer_pp/small.py"}
    promised |= {f"gpt2/{name}.py" for name in ("tiny", "small", "gpt2", "distilgpt2")}
    sizes = (
        "tiny",
        "small",
        "124m",
        "354m",
        "757m",
        "1_4b",
        "150m",
        "450m",
        "900m",
        "1_5b",
        "gpt2_baseline",
        "owt2_354m",
        "owt2_757m",
    )
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
    """Compare with docs/maths/tokenformer.md, 4.1."""

    from mudd_core.engine.model_shape import resolved_model
    from mudd_core.run.build.planned_model import plan_model

    sizes = {
        "124m": 123_569_664,
        "354m": 354_190_848,
        "757m": 753_796_608,
        "1_4b": 1_309_705_728,
        "gpt2_baseline": 123_689_472,
    }
    for name, count in sizes.items():
        config = mc.load_config(f"tokenformer/{name}")
        assert plan_model(resolved_model(config, 50304), config, only=True)[0].n_parameters == count


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
        ("LlamaMedium", "muddformer/llama_medium"),
        ("configs/tokenformer/1-5B_train_pile.yml", "tokenformer/1_5b"),
        ("Haiyang-W/TokenFormer-450M", "tokenformer/450m"),
    ],
)
def test_names_of_the_original_programs_find_our_configs(alias: str, name: str) -> None:
    assert mc.load_config(alias) == mc.load_config(name)


@pytest.mark.parametrize(("name", "source"), [("tiny", "transformer_pp"), ("small", "muddformer")])
def test_root_files_return_the_configs_of_a_family(name: str, source: str) -> None:
    assert mc.load_config(f"{name}.py") == dataclasses.replace(
        mc.load_config(f"{source}/{name}.py"), name=name
    )
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


OURS = ("tiny", "small", "check")


@pytest.mark.parametrize("name", FILES)
def test_published_sizes_train_in_bf16_and_small_models_of_our_own_do_not(name: str) -> None:
    ours = name.removesuffix(".py").rpartition("/")[2] in OURS and name != "mup/small.py"
    published = not ours and not name.startswith("gpt2/")
    config = mc.load_config(name)
    assert config.train.precision == ("bf16" if published else "fp32")
    assert config.optim.moment_dtype == "fp32"


@pytest.mark.parametrize(
    ("name", "train_seed", "data_seed"),
    [
        *((f"tokenformer/{size}", 42, 0) for size in ("124m", "354m", "757m", "1_4b", "gpt2_baseline")),
        *(
            (f"muddformer/{size}", 9876, 9876)
            for size in ("llama_medium", "llama2_medium", "mudd_llama2_medium")
        ),
    ],
)
def test_published_recipes_have_the_originals_seeds(name: str, train_seed: int, data_seed: int) -> None:
    config = mc.load_config(name)
    assert (config.train.seed, config.data.seed) == (train_seed, data_seed)


def test_numbers_of_the_recipes() -> None:
    for name in ("mixtral822", "mixtral822_instruct", "mixtral87"):
        config = mc.load_config(f"mixtral/{name}")
        assert config.train.logical_shards == config.train.batch_size == 256 and config.eval.batch_size == 1
    for name in ("llama2_medium", "mudd_llama2_medium"):
        config = mc.load_config(f"muddformer/{name}")
        assert (config.eval.max_batches, config.eval.batch_size) == (162 * 256, 1)
    for name in ("124m", "354m", "757m", "1_4b", "gpt2_baseline"):
        assert mc.load_config(f"tokenformer/{name}").train.keep_last == 0
    for name in ("150m", "450m", "900m", "1_5b"):
        config = mc.load_config(f"tokenformer/{name}")
        assert (config.train.keep_last, config.train.save_every) == (6, 500)
        assert config.train.save_at == "0,1,2,4,8,16,32,64,128,256,512"
        assert (config.eval.max_batches, config.eval.batch_size) == (100 * 1024 // 4, 4)
    dry = mc.load_config("mixtral/mixtral80").eval
    assert (dry.documents, dry.max_batches) == (100, 0)
    for name in ("gpt2", "distilgpt2"):
        train = mc.load_config(f"gpt2/{name}").train
        assert (train.eval_every, train.save_every, train.log_every) == (5000, 5000, 100)


def test_the_growth_of_openwebtext2() -> None:
    for name, slots in (("owt2_354m", (768, 768, 3072)), ("owt2_757m", (1792, 1792, 7168))):
        config = mc.load_config(f"tokenformer/{name}")
        model = config.model
        assert isinstance(model, TokenFormerConfig)
        assert tuple(model.slots(group) for group in ("qkv", "proj", "ffn")) == slots
        assert (model.n_layer, model.d_model, model.n_head, model.positions, model.init) == (
            24,
            1024,
            16,
            "rotary",
            "neox",
        )
        assert (config.train.batch_size, config.train.seq_len, model.max_seq_len) == (512, 1024, 1024)
        assert config.eval.max_batches == 100 * 512 // 4 and config.train.save_at.endswith(",256,512")
    keeps = {
        name: mc.load_config(f"tokenformer/{name}").train.keep_last for name in ("owt2_354m", "owt2_757m")
    }
    assert keeps == {"owt2_354m": 6, "owt2_757m": 4}


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("smal.py", "small.py"),
        ("llama7b", "muddformer/llama_7b.py"),  # the folder left out
        ("2-8b.py", "muddformer/2_8b.py"),
        ("openai/gpt2-medium", "gpt2/gpt2_medium.py"),  # near an alias
    ],
)
def test_missing_config_names_the_nearest(typed: str, found: str) -> None:
    with pytest.raises(UserError, match=rf"no config file '{typed}'; did you mean '{re.escape(found)}'\?"):
        find_config(typed)
    assert find_config(found).is_file()


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


def test_json_config_loads(tmp_path: Path) -> None:
    config = mc.load_config("gpt2/tiny.py")
    (tmp_path / "c.json").write_text(to_json(config))
    assert mc.load_config(tmp_path / "c.json") == config
