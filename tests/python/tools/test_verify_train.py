"""`verify --train` derives weights again, and finds the forgeries of someone who computes all hashes again."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mudd_core as mc
import provenance_cases
from mudd_core import _core
from own_cases import plus_file
from places import ROOT
from provenance_cases import WORDS, copied, edit, exported, verified
from tiny_run import TinyRun

run, folder, copy = provenance_cases.run, provenance_cases.folder, provenance_cases.copy

Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def words(run: TinyRun, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return ["--train", f"--data={run.text}", f"data.cache_dir={run.text.parent / 'cache'}"]


def test_the_weights_are_derived_again(folder: Path, words: list[str], capsys: Capsys) -> None:
    code, out, err = verified(capsys, folder, *words)
    assert code == 0, out + err
    assert "training here gives the final hash and the logged losses (6) of the statement" in out
    assert "exported here, all files have the same bytes\nnot shown: that the hashes of its code, its" in out
    assert out.count("\n") == 2 and "derive: step 5 of 6" in err


def test_sigterm_removes_the_temporary_folder(folder: Path, tmp_path: Path, words: list[str]) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, str(ROOT / "launch.py"), "verify", str(folder), *words]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(temporary)}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("derive: step" in line for line in process.stderr)
        process.terminate()
        assert process.wait(60) == 143
    assert not list(temporary.iterdir())


def test_a_run_of_avx512_is_derived_at_avx2_in_another_process(
    run: TinyRun, tmp_path: Path, words: list[str]
) -> None:
    if not _core.isa().startswith(("avx512", "amx")):
        pytest.skip("this CPU has no AVX-512")
    wide = TinyRun(tmp_path / "wide", run.text, WORDS, {"MUDD_MAX_ISA": "avx512"}).finished()
    to = exported(wide, tmp_path / "out")
    (start,) = json.loads((to / "provenance.json").read_text())["predicate"]["run"]["starts"]
    assert start["level"] == "avx512"
    command = [
        sys.executable,
        str(ROOT / "launch.py"),
        "verify",
        str(to),
        *words,
        f"--workdir={tmp_path / 'again'}",
    ]
    done = subprocess.run(command, env={**os.environ, "MUDD_MAX_ISA": "avx2"}, capture_output=True, text=True)
    assert done.returncode == 0 and "all files have the same bytes" in done.stdout, done.stdout + done.stderr
    events = (tmp_path / "again" / "run" / "events.jsonl").read_text()
    assert json.loads(events.splitlines()[0])["machine"]["level"] == "avx2"


def test_an_earlier_step_of_a_resumed_run_is_derived(
    run: TinyRun, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    resumed = TinyRun(tmp_path / "resumed", run.text, (*WORDS, "train.stop_at=4"))
    assert resumed.finish_here() == 75
    resumed.words = (*WORDS, "train.stop_at=0", "train.recompute=true")
    resumed.trained()
    to = exported(resumed, tmp_path / "last", "--system=own")
    predicate = json.loads((to / "provenance.json").read_text())["predicate"]
    assert [(one["event"], one["step"]) for one in predicate["run"]["starts"]] == [
        ("started", 0),
        ("resumed", 4),
    ]
    assert any("train.recompute" in one for one in predicate["run"]["starts"][1]["changed"])
    code, out, _ = verified(capsys, to, *words)
    assert code == 0 and "all files have the same bytes" in out
    early = exported(resumed, tmp_path / "early", "--step=4", "--shard-mb=0")
    assert json.loads((early / "provenance.json").read_text())["predicate"]["run"]["step"] == 4
    code, out, _ = verified(capsys, early, *words)
    assert code == 0 and "for step 4 " in out and "losses (4)" in out


# ---- forgeries with all hashes computed again ---------------------------------------------------------------


def test_forged_weights(copy: Path, words: list[str], capsys: Capsys) -> None:
    file = copy / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    statement = json.loads((copy / "provenance.json").read_text())
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(data).hexdigest()
    (copy / "provenance.json").write_text(json.dumps(statement))
    (copy / "README.md").unlink()
    assert verified(capsys, copy)[0] == 0  # hashes alone cannot show it
    code, out, _ = verified(capsys, copy, *words)
    assert (
        code == 1 and "differs: model.safetensors: derived and exported again, the file is another one" in out
    )


def forged(copy: Path, section: str, **members: Any) -> None:
    edit(copy, lambda predicate: predicate[section].update(members), forged=True)


def test_a_forged_config_field(run: TinyRun, copy: Path, words: list[str], capsys: Capsys) -> None:
    edit(copy, lambda predicate: predicate["config"]["values"].update({"optim.lr": 0.1}), forged=True)
    assert verified(capsys, copy)[0] == 0
    text, derived = "differs: step 2: the first logged step that is not equal", copy.parent / "derived"
    code, out, _ = verified(capsys, copy, *words)
    assert code == 1 and text in out
    code, out, err = verified(capsys, copy, *words, f"--run={run.workdir}", f"--workdir={derived}")
    assert code == 1 and text in out, err
    assert re.search(r"optim\.lr +config +0\.003 +0\.1", out), out  # the report of `diff`
    assert [path.name for path in (derived / "run" / "checkpoints").iterdir()] == ["step-2"]
    code, _, err = verified(capsys, copy, *words, f"--run={copy}")
    assert code == 2 and "--run: expected the folder of a run" in err


def test_forged_losses_and_final_hash(copy: Path, words: list[str], capsys: Capsys) -> None:
    forged(copy, "run", finalHash="0" * 64)
    code, out, _ = verified(capsys, copy, *words)
    assert code == 1 and "differs: weights: derived again, step 6 has the final hash" in out
    losses = json.loads((copy / "provenance.json").read_text())["predicate"]["run"]["losses"]
    losses["loss"][4] += 1e-15
    forged(copy, "run", losses=losses)
    code, out, _ = verified(capsys, copy, *words)
    assert code == 1 and "differs: step 5: the first logged step that is not equal" in out


def test_changed_data_with_a_forged_hash(
    run: TinyRun, copy: Path, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    data = copied(run.text, tmp_path / "data")
    (data / "07.txt").write_text((data / "07.txt").read_text().replace("a", "e", 1))
    documents = subprocess.run(
        [sys.executable, "-c", "import sys; from mudd_core.data.sources.corpus import scan; "
         "print(scan(sys.argv[1]).hash)", str(data)],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    forged(copy, "data", documents=documents)
    assert verified(capsys, copy, f"--data={data}")[0] == 0
    code, out, _ = verified(capsys, copy, "--train", f"--data={data}", f"data.cache_dir={tmp_path / 'cache'}")
    assert code == 1 and "differs: data: their tokens have the seal" in out


def test_a_forged_tokenizer(copy: Path, words: list[str], capsys: Capsys) -> None:
    text = (copy / "tokenizer.json").read_text() + " "
    (copy / "tokenizer.json").write_text(text)

    def change(predicate: dict[str, Any]) -> None:
        (one,) = (one for one in predicate["files"] if one["name"] == "tokenizer.json")
        one["digest"]["sha256"] = hashlib.sha256(text.encode()).hexdigest()

    edit(copy, change, forged=True)
    assert verified(capsys, copy)[0] == 0
    code, out, _ = verified(capsys, copy, *words)
    assert code == 1 and "differs: tokenizer.json: derived and exported again, the file is another one" in out


def test_another_version_is_refused_by_name(copy: Path, words: list[str], capsys: Capsys) -> None:
    forged(copy, "code", version="9.9.9")
    code, out, _ = verified(capsys, copy)
    assert code == 0 and f"by mudd_core 9.9.9 (this is {mc.__version__})" in out
    code, out, err = verified(capsys, copy, *words)
    assert code == 2 and f"expected mudd_core {mc.__version__}, which is installed, got a run of 9.9.9" in err


def test_another_runs_statement_with_forged_subjects(
    run: TinyRun, copy: Path, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    other = TinyRun(tmp_path / "other", run.text, (*WORDS, "train.seed=1")).trained()
    theirs = exported(other, tmp_path / "theirs")
    shutil.copy(copy / "model.safetensors", theirs)
    statement = json.loads((theirs / "provenance.json").read_text())
    data = (copy / "model.safetensors").read_bytes()
    statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(data).hexdigest()
    (theirs / "provenance.json").write_text(json.dumps(statement))
    (theirs / "README.md").unlink()
    code, out, _ = verified(capsys, theirs, *words)
    assert code == 1 and "differs: model.safetensors: derived and exported again" in out


def hash_of(run: TinyRun) -> str:
    """Return the final hash of a run."""
    return str(run.summary()["final_hash"])


# ---- adapters, own files, and runs that cannot be derived ---------------------------------------------------


def test_adapters_name_their_base_by_hash(
    run: TinyRun, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    lora = ("tune.method=lora", "lora.rank=4", f"start.load_parameters_path={run.workdir}")
    adapted = TinyRun(tmp_path / "adapted", run.text, (*WORDS, *lora)).trained()
    to = exported(adapted, tmp_path / "out")
    base = json.loads((to / "provenance.json").read_text())["predicate"]["base"]
    facts = json.loads((adapted.workdir / "run.json").read_text())
    assert base == {"name": "run", "sha256": facts["base_sha256"], "hashed": "at the start"}
    moved = copied(run.workdir, tmp_path / "moved")
    code, out, _ = verified(capsys, to)
    assert code == 0 and "the base weights (--base=PATH)" in out
    code, out, _ = verified(capsys, to, f"--base={moved}", *words)
    assert code == 0 and "the base weights have the SHA-256" in out and "all files have the same bytes" in out
    other = TinyRun(tmp_path / "other", run.text, (*WORDS, "train.seed=1")).trained()
    code, out, _ = verified(capsys, to, f"--base={other.workdir}", *words)
    assert code == 1 and f"differs: base: the weights of {other.workdir}: expected SHA-256" in out
    assert "which --train skips because files differ" in out
    theirs = copied(to, tmp_path / "forged")
    edit(theirs, lambda predicate: predicate["base"].update(sha256=hash_of(other)), forged=True)
    code, out, _ = verified(capsys, theirs, f"--base={other.workdir}", *words)
    assert code == 1 and "differs: step 1: the first logged step that is not equal" in out
    code, _, err = verified(capsys, to, *words)
    assert code == 2 and "the run has start.load_parameters_path=" in err and "add --base=PATH" in err


def test_own_code_runs_only_if_the_user_names_it(
    run: TinyRun, tmp_path: Path, words: list[str], capsys: Capsys
) -> None:
    file = plus_file(tmp_path)
    own = TinyRun(tmp_path / "own", run.text, (f"--model.family={file}:Plus", *WORDS)).trained()
    to = exported(own, tmp_path / "out")
    shutil.copy(file, to / "plus.py")
    code, out, _ = verified(capsys, to)
    assert code == 1 and "differs: plus.py: the statement does not name this file" in out
    (to / "plus.py").unlink()
    code, _, err = verified(capsys, to, *words)
    assert code == 2 and "this run needs your own code" in err and "add model.family=FILE.py:Plus" in err
    code, out, err = verified(capsys, to, *words, f"model.family={file}:Plus")
    assert code == 0 and "all other files have the same bytes" in out, err
    evil = tmp_path / "evil.py"
    evil.write_text(f"raise SystemExit('ran')\n{file.read_text()}")
    code, _, err = verified(capsys, to, *words, f"model.family={evil}:Plus")
    assert code == 2 and "expected the run's code with SHA-256" in err


def test_a_statement_cannot_name_code_to_run(copy: Path, words: list[str], capsys: Capsys) -> None:
    evil = copy.parent / "evil.py"
    evil.write_text(f"open({str(copy.parent / 'ran')!r}, 'w').close()\nclass Plus: pass\n")
    named = dict.fromkeys(("model.family", "optim.name", "data.pipeline"), f"{evil}:Plus")
    for field, value in {**named, "optim.groups": f"{evil}:Plus: blocks.*, lr_factor=0.5"}.items():
        values = {field: value}
        edit(copy, lambda predicate, values=values: predicate["config"]["values"].update(values), forged=True)
        code, _, err = verified(capsys, copy, *words)
        assert code == 2 and not (copy.parent / "ran").exists(), err


PLACES = {
    "log.metrics_file": "ran",
    "data.cache_dir": "ran",
    "train.profile": "ran",
    "hub.online": True,
    "data.eval_path": "/etc",
    "data.tokenizer": "/etc/passwd",
    "data.template": "/etc/passwd",
    "lora.start_from": "/etc",
}


@pytest.mark.parametrize("field", PLACES)
def test_a_statement_cannot_name_a_place(
    copy: Path, words: list[str], field: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(copy.parent)
    edit(copy, lambda predicate: predicate["config"]["values"].update({field: PLACES[field]}), forged=True)
    code, _, err = verified(capsys, copy, *words)
    assert code == 2 and (f"a statement has no {field}" in err or f"the run has {field}=/etc" in err), err
    assert not (copy.parent / "ran").exists()


def test_what_cannot_be_derived_is_refused(
    run: TinyRun, copy: Path, words: list[str], capsys: Capsys
) -> None:
    for members, text in (
        ({"starts": []}, "expected a trained run, got weights that were imported or averaged"),
        ({"step": 600}, "expected a step of the run, 1 to 6, got 600"),
        ({"bits": {"fp32_order": 8}}, "expected a machine with fp32_order=8"),
        ({"bits": {"fp32_order": 16, "bits_since": 3}}, "one with bits_since=3"),
        ({"bits": {"fp32_order": 16, "wire_hosts": 2}}, "one with wire_hosts=2"),
        ({"losses": {"step": [1], "loss": []}}, "run.losses: expected steps and as many losses"),
    ):
        place = copied(copy, copy.parent / text.replace("/", " "))
        forged(place, "run", **members)
        code, _, err = verified(capsys, place, *words)
        assert code == 2 and text in err, err
    code, _, err = verified(capsys, copy, "--train")
    assert code == 2 and "the run has data.path=text, a place on its machine; add --data=PATH" in err
    code, _, err = verified(capsys, copy, *words, "optim.lr=1")
    assert code == 2 and "got optim.lr" in err
    code, _, err = verified(capsys, copy, "optim.lr=1")
    assert code == 2 and "unexpected argument 'optim.lr=1'" in err
    code, _, err = verified(capsys, copy, *words, f"--workdir={run.workdir.parent}")
    assert code == 2 and "which exists; give another --workdir" in err
