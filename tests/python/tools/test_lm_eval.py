"""mc.lm_eval.Model compared with the class `hf` of lm-evaluation-harness, and the command evaluate."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mudd_core as mc
from launched import launched
from mudd_core.base.errors import UserError
from mudd_core.cli import main
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer
from places import ROOT

pytest.importorskip("lm_eval")
pytest.importorskip("accelerate")

from lm_eval_cases import CLASSES, T, choices, instances, text, write_model
from mudd_core.lm_eval.generation import Answers, Settings

pytestmark = pytest.mark.filterwarnings("ignore")  # of the harness and its packages
CLOSE = 1e-4  # float32 sums of up to 200 log-probabilities by another program
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TQDM_DISABLE": "1"}
OWN = ("mudd_brackets", "mudd_library_cloze", "mudd_minimal_pairs")
HUB_TASK = """
task: of_the_hub
dataset_path: absent/data
output_type: loglikelihood
test_split: test
doc_to_text: "{{text}}"
doc_to_target: "{{text}}"
"""


def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the libraries for data sets load nothing from the network."""
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture(scope="module", params=list(CLASSES))
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Return the harness's own model and the model of mudd_core for one folder."""
    from lm_eval.models.huggingface import HFLM

    folder = write_model(tmp_path_factory.mktemp("lm_eval"), request.param)
    return HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=4), mc.lm_eval.Model(folder)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small llama."""
    return write_model(tmp_path_factory.mktemp("llama"), "llama")


def test_log_likelihoods_and_greedy_flags_equal_hf(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    asked = instances("loglikelihood", choices())
    # The likeliest token of a context, so that both values of the flag occur.
    likeliest = theirs.generate_until(
        instances("generate_until", [(choices()[9][0], {"until": [], "max_gen_toks": 1})])
    )[0]
    asked += instances("loglikelihood", [(choices()[9][0], likeliest)] if likeliest.strip() else [])
    expected = theirs.loglikelihood(asked, disable_tqdm=True)
    found = ours.loglikelihood(asked, disable_tqdm=True)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert [one for one, _ in found] == pytest.approx([one for one, _ in expected], rel=CLOSE, abs=CLOSE)
    assert ours.truncated == 3 and ours.scorer.computed < ours.scorer.scored


def test_rolling_equals_hf_for_texts_longer_than_the_model(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    draw = random.Random(1)
    asked = instances("loglikelihood_rolling", [(text(draw, count),) for count in (1, 3, 30, 100)])
    expected = theirs.loglikelihood_rolling(asked, disable_tqdm=True)
    assert ours.loglikelihood_rolling(asked, disable_tqdm=True) == pytest.approx(expected, rel=CLOSE)
    assert len(ours.tok_encode(asked[-1].args[0])) > 2 * T


def test_generated_answers_equal_hf_with_stop_strings(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    draw = random.Random(2)
    stops = (["a"], ["e", " t"], "\n", ["zz"], ["x", "é"], [])
    asked = instances(
        "generate_until",
        [
            (text(draw, count), {"until": stop, "max_gen_toks": 20, "do_sample": False})
            for count, stop in zip((3, 5, 3, 40, 8, 60), stops, strict=True)
        ],
    )
    expected = theirs.generate_until(asked, disable_tqdm=True)
    assert ours.generate_until(asked, disable_tqdm=True) == expected and len(set(expected)) > 3


def answered() -> list[Any]:
    """Return requests for answers, greedy and sampled, from prompts of several lengths."""
    draw = random.Random(8)
    settings = [
        {"temperature": 0.8, "do_sample": True, "seed": 3},
        {"do_sample": False},
        {"until": ["e", "é"]},
    ]
    return instances(
        "generate_until",
        [(text(draw, 3 + at % 5), {**settings[at % 3], "max_gen_toks": 5 + at}) for at in range(20)],
    )


def test_answers_do_not_depend_on_the_batch(llama: Path) -> None:
    batched, alone = mc.lm_eval.Model(llama), mc.lm_eval.Model(llama, batch_size=1)
    found = batched.generate_until(answered(), disable_tqdm=True)
    assert found == alone.generate_until(answered(), disable_tqdm=True) and len(set(found)) > 15
    # Fewer than half of the steps, because sequences share them.
    assert 2 * batched.answers.steps < alone.answers.steps


def test_ids_that_the_tokenizer_does_not_have_are_generated_as_in_hf(tmp_path: Path) -> None:
    from lm_eval.models.huggingface import HFLM

    folder = write_model(tmp_path, "llama", more=300)
    theirs, ours = HFLM(pretrained=str(folder), device="cpu", dtype="float32"), mc.lm_eval.Model(folder)
    draw = random.Random(9)
    asked = [
        (text(draw, 3 + at), {"until": ["."], "max_gen_toks": 20, "do_sample": False}) for at in range(6)
    ]
    found = ours.generate_until(instances("generate_until", asked), disable_tqdm=True)
    assert found == theirs.generate_until(instances("generate_until", asked), disable_tqdm=True)
    lengths = [len(ours.tok_encode(one, add_special_tokens=False)) for one in found]
    assert min(lengths) < 18  # ids without text are among the 20


class Counting(ByteTokenizer):
    """Bytes as tokens, and the number of ids that were decoded."""

    decoded = 0

    def decode(self, ids: Iterable[int]) -> str:
        some = list(ids)
        self.decoded += len(some)
        return super().decode(some)


def test_an_answer_is_decoded_once_and_cut_as_in_hf() -> None:
    model = mc.Model(mc.GPT2Config(vocab_size=257, max_seq_len=600, d_model=16, n_layer=1, n_head=2))
    tokenizer, found = Counting(), list[str]()
    answers = Answers(model, tokenizer, 600)
    settings = Settings.of({"until": [], "max_gen_toks": 500, "temperature": 1.0})
    answers.texts([([1, 2, 3], settings)], lambda at, text: found.append(text))
    assert tokenizer.decoded <= 500 and len(found[0]) > 100
    ends = [found[0][40:42], found[0][41], found[0][20:23]]
    for stops in (ends[:1], ends[:2], ends, ends[::-1]):
        cut = Settings.of({"until": stops, "max_gen_toks": 500, "temperature": 1.0})
        answers.texts([([1, 2, 3], cut)], lambda at, text: found.append(text))
        wanted = found[0]
        for stop in stops:
            wanted = wanted.split(stop)[0]
        assert found[-1] == wanted


def test_the_chat_template_renders_as_in_hf(both: tuple[Any, Any]) -> None:
    theirs, ours = both
    talk = [
        {"role": "system", "content": "be  "},
        {"role": "user", "content": "cat the"},
        {"role": "assistant", "content": "Zug "},
    ]
    for messages in (talk, talk[1:], talk[:2]):
        for asks in (True, False):
            assert ours.apply_chat_template(messages, asks) == theirs.apply_chat_template(messages, asks)
    assert ours.chat_template(True) == theirs.chat_template(True) and ours.chat_template(False) is None
    assert ours.tokenizer_name == theirs.tokenizer_name


def test_other_generation_settings_are_refused(both: tuple[Any, Any]) -> None:
    _, ours = both
    with pytest.raises(UserError, match=r"generation_kwargs: expected .*, got num_beams=4"):
        ours.generate_until(instances("generate_until", [("cat", {"num_beams": 4})]), disable_tqdm=True)


def test_continuations_that_cannot_be_scored_are_refused(both: tuple[Any, Any]) -> None:
    _, ours = both
    for targets, reason in (("", "at least 1 token, got none"), (" the" * 2 * T, f"at most {T} tokens")):
        with pytest.raises(UserError, match=reason):
            ours.loglikelihood(instances("loglikelihood", [("cat the", targets)]), disable_tqdm=True)


@pytest.mark.parametrize(("family", "tokenizer"), [("muddformer", "bytes"), ("tokenformer", "bpe")])
def test_runs_evaluate_on_the_offline_tasks(
    family: str, tokenizer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.txt").write_text("the cat is ( open ) and [ closed ] . " * 400)
    words = [
        f"--config={family}/tiny.py", "model.n_layer=2", "model.d_model=32", "model.n_head=2", "train.steps=2",
        "train.seq_len=48", "train.batch_size=4", "train.eval_every=0", f"data.tokenizer={tokenizer}",
        "data.vocab_size=300", "data.path=text.txt", "--workdir=run",
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    asked = ("evaluate", "run", "--tasks=mudd_offline", "--limit=6", "--few-shot=1", "--to=out.json")
    if family == "muddformer":
        done = launched(tmp_path, *asked, **OFFLINE)
        assert done.returncode == 0 and "fatal: not a git" not in done.stderr, done.stderr
        assert all(name in done.stdout for name in OWN) and f"run: {family}" in done.stdout
    else:
        offline(monkeypatch)
        assert main([*asked]) == 0
    result = json.loads((tmp_path / "out.json").read_text())
    assert sorted(result["results"]) == sorted(OWN)
    assert all(result["n-samples"][name]["effective"] == 6 for name in OWN)
    assert result["config"]["model_family"] == family and result["config"]["model_step"] == 2


def test_the_harness_finds_the_class_and_the_tasks(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from mudd_core.lm_eval.__main__ import main as harness

    offline(monkeypatch)
    monkeypatch.setattr("sys.argv", ["lm_eval", "run", "--tasks", "mudd_brackets"])
    monkeypatch.setattr("lm_eval.__main__.cli_evaluate", lambda: None)
    harness()
    assert sys.argv[-2:] == ["--include_path", str(mc.lm_eval.TASKS)]
    tasks = TaskManager(include_path=sys.argv[-1], include_defaults=False)
    asked: dict[str, Any] = {"tasks": ["mudd_brackets"], "limit": 9, "task_manager": tasks}
    found = simple_evaluate(
        model="mudd_core",
        model_args=f"pretrained={both[0].pretrained}",
        device="cuda:0",
        batch_size=2,
        **asked,
    )
    expected = simple_evaluate(model=both[0], **asked)
    for name in ("acc,none", "acc_stderr,none"):
        assert found["results"]["mudd_brackets"][name] == expected["results"]["mudd_brackets"][name]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--tasks is missing"),
        (("--tasks=",), "--tasks: expected the names of tasks"),
        (("--tasks=mudd_bracket",), "no task 'mudd_bracket'; the nearest names: mudd_brackets,"),
        (("--tasks=of_the_hab", "--include=hub"), "no task 'of_the_hab'; the nearest names: of_the_hub,"),
        # A key of the harness's files, so only the index refuses it.
        (("--tasks=doc_to_text",), "no task 'doc_to_text'; the nearest names: "),
        (
            ("--tasks=arc_easy",),
            "the data of arc_easy cannot be loaded .*--tasks=mudd_offline needs no network",
        ),
        (("--tasks=mudd_brackets", "--step=x"), "step: expected a whole number or best, got 'x'"),
        (("--tasks=mudd_brackets", "--template=absent.jinja"), "absent.jinja"),
        (("--tasks=mudd_brackets", "--include=absent"), "--include: expected a folder"),
        (("--tasks=mudd_brackets", "--to=config.json"), "--to: expected a new file"),
        (("--tasks=mudd_brackets", "--to=absent/x.json"), "--to: expected a file in an existing folder"),
        (("--tasks=mudd_brackets", "--limit=0"), "--limit: expected"),
        (("--tasks=mudd_brackets", "--bacth=4"), "did you mean '--batch'"),
    ],
)
def test_mistakes_end_with_a_message(
    llama: Path,
    words: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    offline(monkeypatch)
    monkeypatch.chdir(llama)
    Path("hub").mkdir(exist_ok=True)
    Path("hub/task.yaml").write_text(HUB_TASK)
    assert main(["evaluate", ".", *words]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_an_unknown_task_is_refused_before_the_harness_and_the_model_are_loaded(tmp_path: Path) -> None:
    code = """
import sys
from mudd_core.cli import main
assert main(["evaluate", "absent_run", "--tasks=arc_easy,hellaswagg"]) == 2
assert not {"torch", "lm_eval.tasks", "mudd_core.engine.model"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "there is no task 'hellaswagg'; the nearest names: hellaswag," in done.stderr


def test_the_files_of_the_harness_contain_the_names_of_its_index() -> None:
    import lm_eval

    from mudd_core.tools.evaluate import names as files
    from mudd_core.tools.evaluate.tasks import Tasks

    folder, found = Path(lm_eval.__path__[0]) / "tasks", set[str]()
    for data in files.contents(folder):
        found.update(files.defined(data))
    known = {name for name in Tasks(["arc_easy"], None).names() if not name.startswith("mudd_")}
    assert len(known) > 10_000 and known <= found
    some = random.Random(0).sample(sorted(known), 4)
    # The tag of a file without suffix that tasks include.
    files.require_possible([*some, "acp_bench"], [folder])


def test_a_folder_without_tokenizer_names_the_option(tmp_path: Path) -> None:
    model = mc.Model(mc.GPT2Config(vocab_size=300, max_seq_len=32, d_model=16, n_layer=1, n_head=2))
    model.save(tmp_path / "saved")
    with pytest.raises(UserError, match=r"--tokenizer: expected the tokenizer .*type --tokenizer=PATH"):
        mc.lm_eval.Model(tmp_path / "saved")
    ours = mc.lm_eval.Model(tmp_path / "saved", tokenizer="bytes", max_length=16)
    [(score, _)] = ours.loglikelihood(instances("loglikelihood", [("the cat", " is")]), disable_tqdm=True)
    logits = model.logits(list(b"the cat i")).astype("float64")
    expected = sum(
        logits[at, token] - np.log(np.exp(logits[at]).sum())
        for at, token in zip((6, 7, 8), b" is", strict=True)
    )
    # Three log-probabilities of about 6 in float32, whose logits are summed in another order.
    assert score == pytest.approx(expected, rel=1e-5)


def test_mudd_core_does_not_import_the_harness() -> None:
    code = "import sys, mudd_core as mc; mc.lm_eval.TASKS; assert not {'lm_eval', 'torch'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "python", capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_harness_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert main(["evaluate", "run", "--tasks=mudd_brackets"]) == 2
    assert "expected the package lm_eval to run the tasks, got none; install it: " in capsys.readouterr().err
