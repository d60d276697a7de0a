"""Messages of a run whose recipe names files or a tokenizer that this machine does not have."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.checkpoint.weights_folder import write_folder
from mudd_core.cli import main
from mudd_core.config import Config, DataConfig, MupConfig, config_hash, from_dict, merge_for_resume
from mudd_core.config.saved import to_dict
from mudd_core.interop import export_original
from mudd_core.run.build.recipe import printable, recipe_note

CONFIGS = Path(mc.__file__).resolve().parents[2] / "configs"


def test_the_note_names_recipe_and_replacement() -> None:
    note = recipe_note(mc.load_config("mup/base.py"))
    assert "the text C4 (en) and the tokenizer T5 (t5-base)" in note
    assert "Python's standard library and a BPE vocabulary of 32,100 trained on the run's text" in note
    assert "not comparable" in note and "data.path=FOLDER data.tokenizer=FOLDER/tokenizer.json" in note
    text_only = recipe_note(mc.load_config("mup/base.py", ["data.tokenizer=t5.json"]))
    assert "C4" in text_only and "T5" not in text_only and "data.tokenizer" not in text_only
    tokens_only = recipe_note(mc.load_config("mup/base.py", ["data.path=c4", "data.tokenizer=bytes"]))
    assert "C4" not in tokens_only and "T5" in tokens_only and "uses raw bytes" in tokens_only
    assert recipe_note(mc.load_config("mup/base.py", ["data.path=c4", "data.tokenizer=t5.json"])) == ""
    of_ids = ["data.path=ids", "data.pipeline=features", "data.tokenizer=bpe"]
    assert recipe_note(mc.load_config("gpt2/gpt2", of_ids)) == ""
    assert recipe_note(Config()) == ""


@pytest.mark.parametrize("name", sorted(p.relative_to(CONFIGS).as_posix() for p in CONFIGS.rglob("*.py")))
def test_published_sizes_name_their_recipe(name: str) -> None:
    config = mc.load_config(name)
    ours = Path(name).stem in ("tiny", "small", "check") and name != "mup/small.py"
    assert bool(recipe_note(config)) != ours
    assert bool(config.data.recipe_text) != ours and bool(config.data.recipe_tokenizer) != ours


def test_runs_of_before_go_on() -> None:
    config = mc.load_config("mup/base.py")
    raw = to_dict(config)
    del raw["data"]["recipe_text"], raw["data"]["recipe_tokenizer"]
    old = from_dict(raw)
    assert old.data == DataConfig(vocab_size=32100) and config_hash(old) == config_hash(config)
    merged, changed = merge_for_resume(old, config)
    assert merged == config and all(change.free_on_resume for change in changed)


def test_a_run_and_its_plan_say_it(
    tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"data.path={tiny_text}", f"data.cache_dir={tiny_text.parent / 'cache'}", "data.tokenizer=bytes"]
    words += [
        "--config=tiny.py",
        "model.d_model=16",
        "model.n_layer=1",
        "train.seq_len=16",
        "train.batch_size=2",
    ]
    words += ["train.steps=1", "eval.max_batches=1", "sample.max_tokens=1", f"--workdir={tmp_path / 'run'}"]
    for command in (["--plan"], ["data"], []):
        assert main([*command, *words]) == 0
        assert "the recipe names" not in capsys.readouterr().out
        assert main([*command, *words, "data.recipe_tokenizer=T5"]) == 0
        finished = "is finished." in (told := capsys.readouterr().out)
        assert finished or "the recipe names the tokenizer T5;\n  this run uses raw bytes" in told
    assert main([*words, "data.recipe_tokenizer=T5", f"--workdir={tmp_path / 'other'}"]) == 0
    told = capsys.readouterr().out
    assert told.index("the recipe names the tokenizer T5") < told.index("done: 1 steps")


def test_an_import_leaves_it_to_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = MupConfig(vocab_size=257, max_seq_len=8, d_model=8, n_layer=1, d_base=8, d_head=8, qk_scale=1 / 8)
    settings, weights = export_original("mu_transformer", mc.Model(shape))
    named = {**settings, "hfds_identifier": "c4\x1b[2J", "hftr_tokenizer_instance": "t5-base"}
    write_folder(tmp_path / "hers", named, weights, shard_bytes=1 << 20)
    text = tmp_path / "text.txt"
    text.write_text("a line of text\n" * 200)
    words = ["import", str(tmp_path / "hers"), "--system=mu_transformer"]
    assert (
        main([*words, f"--workdir={tmp_path / 'bytes'}"]) == 0
    )  # 257 ids mean bytes, but the text is missing
    assert "recipe" not in capsys.readouterr().out
    started = [f"--config={tmp_path / 'bytes' / 'config.json'}", f"--workdir={tmp_path / 'bytes'}", "--plan"]
    assert main(started) == 0
    told = capsys.readouterr().out
    assert "the recipe names the text c4?[2J;\n  this run uses the sources of Python" in told
    assert main([*words, f"--workdir={tmp_path / 'asked'}", "--tokenizer=bytes", f"data.path={text}"]) == 0
    assert "recipe" not in capsys.readouterr().out
    run = tmp_path / "asked"
    cut = ["train.stop_at=1", f"data.cache_dir={tmp_path / 'cache'}"]
    assert main([f"--config={run / 'config.json'}", f"--workdir={run}", *cut]) == 75
    assert "the recipe names the tokenizer t5-base;\n  this run uses raw bytes" in capsys.readouterr().out
    config = mc.load_config(str(tmp_path / "asked" / "config.json"))
    assert config.data.recipe_tokenizer == "t5-base" and dataclasses.replace(config).model == shape
    assert printable("a\nb\ud800") == "a?b?" and len(printable("x" * 500)) == 80
