"""Folders of Hugging Face and PEFT in the place of a run: every command names the command that uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launched import called, launched
from tiny_run import CONFIG

MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
ADAPTER = {"peft_type": "LORA", "base_model_name_or_path": "org/base\x1b[2J", "r": 4}
TRAIN = (f"--config={CONFIG}",)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Return a folder with a model of Hugging Face, one in the hub's cache, and adapters of PEFT."""
    kept = tmp_path / "models--org--small"
    for folder in (tmp_path / "hf", kept / "snapshots" / "old", kept / "snapshots" / "abc"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(MODEL))
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("abc")
    (tmp_path / "peft").mkdir()
    (tmp_path / "peft" / "adapter_config.json").write_text(json.dumps(ADAPTER))
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ("chat", "x.gguf"),
        ("sample", "--workdir=x.gguf"),
        ("import", "x.gguf", "--workdir=run"),
        ("tune", "--base=x.gguf", "--data=chat.jsonl", "--workdir=run"),
        ("export", "x.gguf", "--to=out"),
    ],
    ids=" ".join,
)
def test_a_gguf_file_is_named_with_what_to_give_instead(here: Path, words: tuple[str, ...]) -> None:
    (here / "x.gguf").write_bytes(b"GGUF")
    done = called(here, *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert (
        "got the GGUF file 'x.gguf', which only llama.cpp and Ollama read; name the run that" in done.stderr
    )
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("sample", "hf"),
        ("validate", "hf"),
        ("report", "hf"),
        ("data", "hf"),
        ("data", "show", "hf"),
        ("weights", "hf"),
        ("compare", "hf", "hf"),
        ("export", "--workdir=hf", "--to=out"),
        ("profile", "--config=hf"),
        ("hf",),
        ("--config=hf",),
        ("--config=hf/config.json",),
        ("--workdir=hf",),
        (*TRAIN, "--workdir=hf"),
        (*TRAIN, "start.load_parameters_path=hf"),
    ],
    ids=" ".join,
)
def test_a_command_names_the_import(here: Path, words: tuple[str, ...]) -> None:
    done = called(here, *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "got 'hf', a model of Hugging Face; type: " in done.stderr
    assert done.stderr.endswith("launch.py import hf --workdir=runs/hf\n") or words[0] == "profile"
    assert sorted(entry.name for entry in (here / "hf").iterdir()) == ["config.json"]


def test_the_hubs_cache_and_a_used_name(here: Path) -> None:
    (here / "runs" / "small").mkdir(parents=True)
    for name in ("models--org--small", "models--org--small/snapshots"):
        done = launched(here, "sample", name)
        assert done.stderr.endswith("import models--org--small/snapshots/abc --workdir=runs/small-2\n")


@pytest.mark.parametrize(
    "words",
    [
        ("sample", "peft"),
        ("--workdir=peft",),
        ("report", "--workdir=peft"),
        ("import", "peft", "--workdir=w"),
    ],
)
def test_adapters_are_tuned_or_merged(here: Path, words: tuple[str, ...]) -> None:
    done = launched(here, *words)
    assert done.returncode == 2 and "adapters of PEFT for the model 'org/base\\x1b[2J'" in done.stderr
    assert "tune --base=FOLDER --data=FILE --adapter=peft --workdir=runs/peft;" in done.stderr
    assert "export --workdir=runs/peft --merged --to=runs/peft-merged\n" in done.stderr


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("mc.load_config('hf')", "call mc.load('hf')"),
        ("mc.Trainer(mc.load_config('tiny.py'), 'hf')", "call mc.load("),
        ("mc.Trainer('hf')", "model=mc.load('hf').model)"),
        ("mc.Trainer('models--org--small')", "mc.load('models--org--small/snapshots/abc').model)"),
        ("mc.load_run('models--org--small')", "call mc.load('models--org--small/snapshots/abc')"),
        ("mc.load_run('peft')", "call mc.tune('FOLDER', 'FILE', 'runs/peft', adapter='peft');"),
        ("mc.Trainer('peft')", "call then mc.export('runs/peft', 'runs/peft-merged')"),
    ],
)
def test_a_program_in_python_gets_the_call(here: Path, call: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import mudd_core as mc\n{call}"], cwd=here, capture_output=True, text=True
    )
    last = done.stderr.splitlines()[-1]
    assert says in last and "launch.py" not in last


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"model_type"'])
def test_other_json_is_no_model(here: Path, content: str) -> None:
    (here / "hf" / "config.json").write_text(content)
    done = launched(here, "sample", "hf")
    assert done.returncode in (2, 65) and "Hugging Face" not in done.stderr
