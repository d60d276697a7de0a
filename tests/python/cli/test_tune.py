"""The command tune: choices, plan, run, answers before and after, resume, export, and other bases and data."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mudd_core as mc
from chat_cases import turns, write_jsonl
from exported_files import exported_files
from hf_models import transformers
from launched import launched
from mudd_core.base.types import Float32
from mudd_core.base.units import bytes_text
from mudd_core.cli import main
from places import ROOT
from rank_runs import by_threads
from reference import bounds
from tune_folders import write_given

peft = pytest.importorskip("peft")
safetensors = pytest.importorskip("safetensors.torch")

WORDS = ("train.threads=1", "optim.lr=0.003", "train.seq_len=64", "train.epochs=2")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small llama, a chat template and 80 conversations."""
    return write_given(tmp_path_factory.mktemp("tune"), 80, unused_ids=3)


def tune(
    folder: Path, *words: str, base: str = "base", run: str = "mine", fields: Sequence[str] = WORDS
) -> subprocess.CompletedProcess[str]:
    """Run the command in the folder."""
    command = ["tune", f"--base={base}", "--data=chat.jsonl", f"--workdir=runs/{run}"]
    return launched(folder, *command, *fields, *words)


@pytest.fixture(scope="module")
def whole(given: Path) -> subprocess.CompletedProcess[str]:
    """Run a tuning of all weights. This base has random weights, so adapters could not learn an answer."""
    return tune(given, "tune.method=full")


@pytest.fixture(scope="module")
def adapted(given: Path) -> subprocess.CompletedProcess[str]:
    """Run the command as a user types it, with its default method."""
    return tune(given, run="adapted")


def goes_on(folder: Path, stopped: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """Run the command that a stopped run has printed."""
    found = re.search(r"; to resume:\n  (.*)$", stopped.stdout, re.M)
    assert stopped.returncode == 75 and found, stopped.stdout + stopped.stderr
    words = [word for word in shlex.split(found[1]) if word != "python3"]
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=180, cwd=folder)


def final_hash(folder: Path, done: subprocess.CompletedProcess[str]) -> str:
    """Return the hash of the run that a command has trained; its last line names the run."""
    found = re.search(r"^  .* report (\S+) --html$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return str(json.loads((folder / found[1] / "summary.json").read_text())["final_hash"])


def test_it_says_what_it_chose_trains_and_shows_both_answers(
    given: Path, whole: subprocess.CompletedProcess[str]
) -> None:
    assert whole.returncode == 0, whole.stderr
    text = whole.stdout
    assert re.search(
        r"^data: \d+ examples, [\d,]+ tokens an epoch .* held out \(\d+%\); \d+\.\d% of the targets",
        text,
        re.M,
    )
    for line in (r"optim\.lr=0\.003 +as the arguments say", r"optim\.schedule=linear +falls to zero"):
        assert re.search(line, text), text
    assert "{+end " in text and "a sample of what it learned" not in text
    before, after = map(float, re.search(r"held-out loss: (\S+) before, (\S+) after", text).groups())  # type: ignore[union-attr]
    assert after < before - 0.5
    answers = re.findall(r"^  (prompt|data|before|after) ", text, re.M)
    assert answers == ["prompt", "data", "before", "after"] * 3
    assert re.search(r"^  data    end \d+$", text, re.M)
    assert re.search(r"^  after   end", text, re.M)


def test_a_plan_says_the_same_and_trains_nothing(
    given: Path, adapted: subprocess.CompletedProcess[str]
) -> None:
    plan = tune(given, "--plan", run="planned")
    assert plan.returncode == 0, plan.stderr
    choices = [line for line in adapted.stdout.splitlines() if re.match(r"data: |  [a-z]+\.[a-z_]+=", line)]
    assert choices and all(line in plan.stdout for line in choices)
    for name in ("memory", "time", "parameters", "FLOPs"):
        assert re.search(rf"^  {name} ", plan.stdout, re.M)
    trained = re.search(r"([\d,]+) of [\d,]+ parameters train", plan.stdout)
    assert trained, plan.stdout
    saved = 12 * int(trained[1].replace(",", ""))  # the adapters and two moments, without the base
    assert f"  checkpoint    {bytes_text(saved)} each" in plan.stdout
    assert {file.name for file in (given / "runs" / "planned").iterdir()} == {".lock", "base"}
    assert final_hash(given, tune(given, run="planned")) == final_hash(given, adapted)


def test_the_same_command_goes_on_with_the_same_bits(
    given: Path, adapted: subprocess.CompletedProcess[str]
) -> None:
    stopped = tune(given, "train.stop_at=2", run="stopped")
    again = goes_on(given, stopped)
    assert "resumes runs/stopped" in again.stdout
    assert final_hash(given, again) == final_hash(given, adapted)
    assert "held-out loss: " in tune(given, run="stopped").stdout  # the run is finished


def test_a_killed_run_goes_on_with_the_same_bits(
    given: Path, adapted: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the run during the import of its base, and in two saves."""
    for point in ("after_shard_write", "after_block:2", "before_rename:2"):
        monkeypatch.setenv("MUDD_KILL_AT", point)
        killed = tune(given, run="killed")
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    monkeypatch.delenv("MUDD_KILL_AT")
    again = tune(given, run="killed")
    assert "resumes runs/killed" in again.stdout and final_hash(given, again) == final_hash(given, adapted)


def test_two_ranks_have_the_bits_of_one(given: Path, adapted: subprocess.CompletedProcess[str]) -> None:
    stopped = tune(given, "--ranks=2", "train.stop_at=2", run="ranks")
    on_ranks = goes_on(given, stopped)
    assert "--ranks=2" in stopped.stdout and final_hash(given, on_ranks) == final_hash(given, adapted)
    assert "tune.method=lora" in stopped.stdout and "adapters of the base" in stopped.stdout
    before, after = map(
        float, re.search(r"held-out loss: (\S+) before, (\S+) after", on_ranks.stdout).groups()
    )  # type: ignore[union-attr]
    assert after < before - 0.1


def test_ranks_of_short_examples_take_a_row_each_and_have_the_bits_of_that_batch(given: Path) -> None:
    write_jsonl(given / "short.jsonl", [{"messages": turns("a", f"{n}")} for n in range(60)])
    fields = ("--data=short.jsonl", "train.threads=1", "train.seq_len=128", "train.steps=2")
    on_ranks = tune(given, "--ranks=2", run="short-ranks", fields=fields)
    assert re.search(r"^  train\.batch_size=2 +a sequence for each of 2 ranks", on_ranks.stdout, re.M), (
        on_ranks.stderr
    )
    alone = tune(given, "train.batch_size=2", run="short-alone", fields=fields)
    assert final_hash(given, on_ranks) == final_hash(given, alone)


def test_export_gives_back_the_folder_of_the_base(
    given: Path, whole: subprocess.CompletedProcess[str]
) -> None:
    command = [sys.executable, str(ROOT / "launch.py"), "export", "--workdir=runs/mine", "--to=out"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=given)
    assert done.returncode == 0, done.stderr
    assert (given / "out" / "tokenizer.json").read_bytes() == (given / "base" / "tokenizer.json").read_bytes()
    before, after = (json.loads((given / x / "tokenizer_config.json").read_text()) for x in ("base", "out"))
    assert after == {**before, "eos_token": "<|im_end|>"}  # the base stops at </s> only


def test_another_base_and_other_data_are_refused(
    given: Path, whole: subprocess.CompletedProcess[str]
) -> None:
    changed = given / "changed"
    shutil.copytree(given / "base", changed)
    settings = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**settings, "rms_norm_eps": 1e-3}))
    for words, said in (
        ({"base": "changed"}, "[tune] --base: runs/mine was started from "),
        ({"base": "chat.jsonl"}, "[tune] --base: runs/mine was started from "),
        ({"base": "nowhere"}, "expected a folder with config.json"),
    ):
        refused = tune(given, **words, run="new" if words["base"] == "nowhere" else "mine")  # type: ignore[arg-type]
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    shutil.copy(given / "chat.jsonl", given / "other.jsonl")
    refused = tune(given, "--data=other.jsonl")
    assert (
        refused.returncode == 2 and "[tune] --data: runs/mine was started with chat.jsonl" in refused.stderr
    )


def test_an_export_has_the_adapters_in_its_weights(
    given: Path, adapted: subprocess.CompletedProcess[str]
) -> None:
    command = [sys.executable, str(ROOT / "launch.py"), "export", "--workdir=runs/adapted", "--to=merged"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=given)
    assert done.returncode == 0, done.stderr
    model = transformers.AutoModelForCausalLM.from_pretrained(given / "merged").eval()
    ids = torch.arange(24)[None]
    want = mc.load(given / "runs" / "adapted").model.logits(ids.numpy())
    with torch.no_grad():
        got = model(ids).logits.numpy()
        base = transformers.AutoModelForCausalLM.from_pretrained(given / "base").eval()(ids).logits.numpy()
    # PyTorch also computes in float32, but adds in another order.
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    assert np.abs(base - want).max() > 1e-2 * np.abs(want).max()


def test_an_export_holds_one_model_at_a_time(
    given: Path, adapted: subprocess.CompletedProcess[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that an export does not keep packed copies of the weights, even while it compares models."""
    held: weakref.WeakSet[mc.Model] = weakref.WeakSet()
    make, logits, seen = mc.Model.__init__, mc.Model.logits, []

    def made(model: mc.Model, *words: Any, **options: Any) -> None:
        make(model, *words, **options)
        if not options.get("booked_only"):
            held.add(model)

    def asked(model: mc.Model, ids: Any) -> Float32:
        found = logits(model, ids)
        seen.append((len(held), model.store.packed_bytes))
        return found

    monkeypatch.setattr(mc.Model, "__init__", made)
    monkeypatch.setattr(mc.Model, "logits", asked)
    monkeypatch.chdir(given)
    for form, comparisons in (("--merged", 4), ("--adapter", 2)):
        assert main(["export", "--workdir=runs/adapted", f"--to=held{form}", form]) == 0
        assert seen == [(1, 0)] * comparisons
        seen.clear()


def export(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the export command in the folder."""
    return launched(folder, "export", *words)


def test_an_export_has_the_adapters_alone(given: Path, adapted: subprocess.CompletedProcess[str]) -> None:
    done = export(given, "--workdir=runs/adapted", "--to=adapter", "--adapter")
    assert done.returncode == 0, done.stderr
    assert "28 tensors in adapter" in done.stdout and "loaded again, its logits are the run's" in done.stdout
    settings = json.loads((given / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(given / "base") and settings["r"] == 16
    assert (given / "adapter" / "tokenizer.json").read_bytes() == (
        given / "base" / "tokenizer.json"
    ).read_bytes()
    card = (given / "adapter" / "README.md").read_text()
    for told in (
        "library_name: peft",
        "| base | base (SHA-256 ",
        "| data | chat.jsonl (SHA-256 ",
        "optim.lr=0.003",
    ):
        assert told in card, card
    assert re.search(r"\| loss \| training [\d.]+; held-out [\d.]+ before, [\d.]+ after", card)
    assert (
        f"launch.py tune --base=base --data=chat.jsonl --workdir=runs/adapted {' '.join(WORDS)}\n" in card
        and str(given) not in card
    )
    assert f"chat.jsonl (SHA-256 {hashlib.sha256((given / 'chat.jsonl').read_bytes()).hexdigest()})" in card
    for words, said in (
        (("--workdir=runs/adapted", "--adapter", "--merged"), "not allowed with"),
        (
            ("--workdir=runs/adapted", "--adapter", "--system=mu_transformer"),
            "leave --system=mu_transformer out",
        ),
        (("--workdir=runs/adapted", "--base=base"), "--base: expected --adapter with it, got none"),
    ):
        refused = export(given, *words, "--to=none")
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr


def test_adapters_of_a_run_of_whole_weights_are_refused(
    given: Path, whole: subprocess.CompletedProcess[str]
) -> None:
    for form in ("--adapter", "--merged"):
        refused = export(given, "--workdir=runs/mine", "--to=none", form)
        assert (
            refused.returncode == 2
            and f"[export] {form}: expected a run that trained adapters" in refused.stderr
        )


def near_sum(run: mc.Model, layer: str, value: Float32) -> bool:
    """Return True if the values are W + scale A B rounded to the nearest bf16, up to the error of an fp32 sum."""
    scale = run.store.adapters.scale
    w, a, b = (run.parameters[f"{layer}.{name}"].astype(np.float64) for name in ("w", "lora_a", "lora_b"))
    added, size = scale * a @ b, scale * np.abs(a) @ np.abs(b)
    half_step = np.ldexp(1.0, np.frexp(w + added)[1] - 9)
    far = np.abs(value - w - added) - bounds.op_bound("linear") * (np.abs(w) + size)
    return bool(added.any() and (far <= half_step).all())


def test_merged_weights_are_rounded_once_to_the_type_of_the_base(
    given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(given)  # its runs/cache has the hash of the data
    half = given / "half"
    shutil.copytree(given / "base", half)
    for file in half.glob("*.safetensors*"):
        file.unlink()
    model = transformers.AutoModelForCausalLM.from_pretrained(given / "base").to(torch.bfloat16)
    model.save_pretrained(half)
    done = tune(given, base="half", run="half")
    assert done.returncode == 0, done.stderr
    done = export(given, "--workdir=runs/half", "--to=half-merged", "--merged")
    assert done.returncode == 0 and "rounded once to BF16" in done.stderr, done.stderr
    for name in ("config.json", "tokenizer.json"):
        assert (given / "half-merged" / name).read_bytes() == (half / name).read_bytes(), name
    words = ["export", f"--workdir={given / 'runs' / 'half'}", "--merged", "mesh.zero=3"]
    assert by_threads([*words, f"--to={given / 'by-ranks'}"], 2, 1) == [0, 0]
    assert exported_files(given / "by-ranks") == exported_files(given / "half-merged")
    run = mc.load(given / "runs" / "half").model
    made = mc.load(given / "half-merged").model.parameters
    layers = run.store.adapters.names
    assert len(layers) == 14
    for name, value in made.items():
        layer = name.removesuffix(".w")
        good = near_sum(run, layer, value) if layer in layers else np.array_equal(value, run.parameters[name])
        assert good and np.array_equal(value, torch.tensor(value).bfloat16().float()), name
    loaded = transformers.AutoModelForCausalLM.from_pretrained(given / "half-merged")
    assert loaded.dtype == torch.bfloat16


def test_an_export_by_our_own_names_keeps_the_adapters(
    given: Path, adapted: subprocess.CompletedProcess[str]
) -> None:
    command = [sys.executable, str(ROOT / "launch.py"), "export", "--workdir=runs/adapted", "--to=own"]
    done = subprocess.run([*command, "--system=own"], capture_output=True, text=True, timeout=120, cwd=given)
    assert done.returncode == 0, done.stderr
    assert "for mc.load; verified: these weights equal the run's weights" in done.stdout
    ids = np.arange(24)[None]
    kept, run = mc.load(given / "own"), mc.load(given / "runs" / "adapted").model
    assert kept.model.lora == run.lora is not None
    assert np.array_equal(kept.model.logits(ids), run.logits(ids))


@pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing.*:FutureWarning"
)  # transformers warns about a call in peft
def test_adapters_of_peft_are_trained_further(given: Path) -> None:
    base = transformers.AutoModelForCausalLM.from_pretrained(given / "base")
    settings = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "up_proj"], "init_lora_weights": False}
    peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).save_pretrained(
        given / "theirs"
    )
    words = ("--adapter=theirs", "optim.lr=0", "train.epochs=1")
    done = tune(given, *words, run="further", fields=WORDS[:1])
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
    for line in (r"lora\.rank=4 +of the adapter theirs", r"lora\.alpha=8 ", r"lora\.targets=q,up "):
        assert re.search(line, done.stdout), done.stdout
    again = tune(given, *words, run="further", fields=WORDS[:1])
    assert again.returncode == 0 and "resumes runs/further" in again.stdout, again.stderr
    done = export(given, "--workdir=runs/further", "--to=unchanged", "--adapter")
    assert done.returncode == 0, done.stderr
    files = [
        safetensors.load_file(given / name / "adapter_model.safetensors") for name in ("theirs", "unchanged")
    ]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(value, files[1][name]) for name, value in files[0].items())
    other = tune(given, "--adapter=unchanged", run="further")
    assert other.returncode == 2 and "[tune] --adapter: runs/further was started with" in other.stderr
    for words, said in (
        (("lora.rank=8",), "[tune] lora.rank: the adapter theirs decides it"),
        (("tune.method=full",), "[tune] --adapter: starts adapters"),
    ):
        refused = tune(given, "--adapter=theirs", *words, run="refused")
        assert refused.returncode == 2 and said in refused.stderr, refused.stderr
    file = given / "theirs" / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:99])
    refused = tune(given, "--adapter=theirs", run="refused")
    assert refused.returncode == 65 and str(file.relative_to(given)) in refused.stderr, refused.stderr
