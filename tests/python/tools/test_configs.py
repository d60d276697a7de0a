"""The command `configs`: sizes of all configs, and the configs of a kind."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mudd_core as mc
from launched import called, launched
from mudd_core.base.errors import UserError
from mudd_core.config.config_files import config_files
from mudd_core.config.load import read_config
from mudd_core.run.build.plan_time import SpeedOfRuns
from mudd_core.run.store.run_folder import RunFolder
from mudd_core.tools.configs.command import main
from mudd_core.tools.configs.sizes import Speed, sizes_of
from tiny_run import TinyRun


def listed(output: str) -> list[str]:
    """Return the names of the configs in the table, which ends at an empty line."""
    lines = output.partition("\n\n")[0].splitlines()
    assert lines[0].split() == ["config", "parameters", "tokens", "text", "time", "here"]
    return [line.split()[0] for line in lines[1:] if not line.startswith(" ")]


def test_all_configs_are_listed_with_their_sizes(tmp_path: Path) -> None:
    done = launched(tmp_path, "configs")
    assert (done.returncode, done.stderr) == (0, "")
    names = listed(done.stdout)
    assert names[:2] == ["small.py", "tiny.py"] and sorted(names) == list(config_files())
    (tiny,) = [line for line in done.stdout.splitlines() if line.startswith("tiny.py ")]
    assert tiny.split()[1:6] == ["1.33", "M", "512", "k", "default"]
    assert (
        "launch.py base_v2.yml run_name=NAME" in done.stdout and "launch.py clm model.config" in done.stdout
    )
    assert "an estimate from" in done.stdout and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("word", "some", "told"),
    [
        ("llama", {"transformer_pp/tiny.py", "muddformer/llama_7b.py"}, "learns visibly within two minutes"),
        ("gpt", {"gpt2/tiny.py", "gpt2/gpt2.py"}, "Also: openai-community/gpt2"),
        ("moe", {"mixtral/small.py", "muddformer/405m_moe.py"}, "mixtral80.json"),
        ("mup", {"mup/base.py"}, "The original's base.py"),
        ("405m", {"muddformer/405m.py", "muddformer/405m_moe.py"}, ""),
        ("wikitext", {"gpt2/gpt2.py"}, "WikiText-103"),
        ("Caiyun", {"muddformer/2_8b.py"}, "Also: "),
        ("learns visibly", {"gpt2/tiny.py"}, ""),
    ],
)
def test_a_name_kind_text_or_description_filters(
    word: str, some: set[str], told: str, tmp_path: Path
) -> None:
    done = called(tmp_path, "configs", word)
    assert done.returncode == 0 and some <= set(listed(done.stdout)), done.stderr
    assert told in " ".join(done.stdout.split()) and len(listed(done.stdout)) < 20


def test_several_names_list_the_configs_of_each_once(tmp_path: Path) -> None:
    done = launched(tmp_path, "configs", "gpt", "405m", "distilgpt2")
    of_gpt, of_405m = (listed(called(tmp_path, "configs", word).stdout) for word in ("gpt", "405m"))
    assert listed(done.stdout) == [*of_gpt, *of_405m], done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["mudformer"], "did you mean 'muddformer'?"),
        (
            ["nothing-like-it"],
            "; the families are: gpt2, mixtral, muddformer, mup, tokenformer, transformer_pp",
        ),
        (["gpt", "nothing-like-it"], "no config has 'nothing-like-it' in its name"),
        (["--config=tiny.py"], "unknown option '--config=tiny.py'"),
    ],
)
def test_a_wrong_word_is_named(words: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told.replace("?", r"\?")):
        main(words)


def test_sizes_are_those_of_the_model_and_the_plan(tmp_path: Path) -> None:
    sizes = sizes_of("gpt2/tiny.py", Speed({"fp32": 1e12}))
    config = read_config("gpt2/tiny.py")
    assert sizes.tokens == config.train.steps * config.train.batch_size * config.train.seq_len
    plan = called(tmp_path, "--config=gpt2/tiny.py", "--plan").stdout
    assert f"parameters    {sizes.parameters:,}," in plan
    assert sizes.seconds is not None and 0 < sizes.seconds < 60


def test_the_speed_of_a_run_of_the_same_size_is_used(tiny_text: Path, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    run = TinyRun(tmp_path / "runs" / "one", tiny_text, ("train.steps=4", "train.log_every=1")).finished()
    config = mc.load_config(str(run.workdir / "config.json"))
    speed = SpeedOfRuns(RunFolder(tmp_path / "runs" / "any"))
    fraction, source = speed.fraction(config)
    assert 0 < fraction <= 1 and f"measured by the run {run.workdir}" in source
    shutil.rmtree(run.workdir)
    assert speed.fraction(config) == (fraction, source)  # each run is read once
    assert SpeedOfRuns(RunFolder(run.workdir)).fraction(config)[0] == 0.5
