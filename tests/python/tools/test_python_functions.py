"""mc.plan, mc.compare and mc.export: their values, how they print, and wrong arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mudd_core as mc
from launched import launched
from mudd_core.base.errors import UserError
from mudd_core.base.python_arguments import in_python
from mudd_core.tools.export_weights.asked import Asked
from places import ROOT

SMALL = {"n_layer": 1, "d_model": 16, "d_ff": 16, "n_head": 2}


@pytest.fixture(scope="module")
def folder(tiny_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the runs runs/a and runs/b, of another seed, with checkpoints at steps 2 and 4."""
    folder = tmp_path_factory.mktemp("functions")
    config = mc.load_config(
        "tiny.py",
        data_path=tiny_text,
        data_tokenizer="bytes",
        data_cache_dir=folder / "cache",
        train_steps=4,
        train_save_every=2,
        train_seq_len=16,
        train_log_every=1,
        eval_max_batches=1,
    ).replace({"model": SMALL})
    for seed, name in enumerate("ab"):
        with mc.Trainer(config.replace(train_seed=seed), folder / "runs" / name) as trainer:
            trainer.fit(progress=False)
    return folder


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def test_a_plan_has_the_values_that_it_prints() -> None:
    plan = mc.plan("runs/a")
    assert plan.steps == 4 and plan.fits and f"{plan.parameters:,}" in repr(plan)
    assert plan.parameters == mc.load_run("runs/a").model.n_parameters
    assert plan.peak_bytes == sum(plan.memory.values()) > plan.memory["weights"] >= 4 * plan.parameters
    assert plan.seconds == pytest.approx(4 * plan.seconds_per_step)
    assert "<table>" in plan._repr_html_()


def test_a_plan_keeps_the_threads_of_the_process() -> None:
    before = mc.num_threads()
    mc.plan(
        mc.load_config(
            "tiny.py", data_path=str(mc.load_run("runs/a").config.data.path), train_threads=before + 1
        )
    )
    assert mc.num_threads() == before


def test_a_plan_that_does_not_fit_says_so_in_words_of_python() -> None:
    plan = mc.plan("runs/a", ranks=2, node_memory=0.001)
    assert not plan.fits and "no; print(plan) says why" in plan._repr_html_()
    assert "(node_memory)" in repr(plan) and "--" not in repr(plan)
    assert mc.plan("runs/a", ranks=2).memory["weights"] < mc.plan("runs/a").memory["weights"]


def test_a_comparison_prints_as_the_command_does(folder: Path) -> None:
    comparison = mc.compare("runs/a", mc.load_run("runs/b"))
    printed = launched(folder, "compare", "runs/a", "runs/b").stdout.rstrip()
    # The command names the path of launch.py that was typed.
    assert printed.replace(str(ROOT / "launch.py"), "python3 launch.py") == repr(comparison)
    assert comparison.first_differences == {"B": 1}
    assert comparison.runs == {"A": Path("runs/a"), "B": Path("runs/b")}
    assert comparison._repr_html_().count("<table>") >= 4
    comparison.save("page.html")
    assert "<svg" in (folder / "page.html").read_text()


def test_a_run_opened_at_a_step_is_used_at_that_step() -> None:
    early = mc.load_run("runs/b", step=2)
    assert "up to step 2 of 4" in repr(mc.compare("runs/a", early))
    exported = mc.export(early, "early")
    assert exported.step == 2 and exported.system == "hf"
    step = np.int64(2)
    assert (
        mc.load_run("runs/b", step=step).step == mc.export("runs/b", "early", step=step, force=True).step == 2
    )
    for base in (early, mc.load_run("runs/b/checkpoints/step-2")):
        with pytest.raises(ValueError, match=r"got step 2 of a run with step 4; type mc\.export\("):
            mc.tune(base, "chat.jsonl", "runs/tuned")
    with pytest.raises(ValueError, match=r"chat\.jsonl"):  # the newest step is accepted
        mc.tune(mc.load_run("runs/b", step=4), "chat.jsonl", "runs/tuned")
    assert mc.export("runs/b", "early", force=True, system="own").step == 4
    assert (
        mc.load("early").model.parameters["embed"] == mc.load_run("runs/b").model.parameters["embed"]
    ).all()


def test_an_export_names_the_line_that_loads_it() -> None:
    exported = mc.export("runs/a", "a-hf")
    assert "AutoModelForCausalLM.from_pretrained('a-hf')" in exported.loading
    assert repr(exported).count("a-hf") == 2 and "<table>" in exported._repr_html_()


Call = Callable[[], object]
WRONG: list[tuple[Call, type[Exception], str]] = [
    (lambda: mc.plan(5), TypeError, "[plan] config: expected a Config or"),  # type: ignore[arg-type]
    (lambda: mc.plan("nofile.py"), ValueError, "no config file 'nofile.py'"),
    (lambda: mc.plan("runs/a", 3), TypeError, "[plan] workdir: expected a folder or None, got 3"),  # type: ignore[arg-type]
    (
        lambda: mc.plan("runs/a", "runs/c"),
        ValueError,
        "[plan] workdir: expected none with runs/a, the folder",
    ),
    (
        lambda: mc.plan("runs/a", ranks="2"),
        TypeError,
        "[plan] ranks: expected a whole number from 1, got '2'",
    ),  # type: ignore[arg-type]
    (
        lambda: mc.load_config("tiny.py", 5),
        TypeError,
        "[load_config] overrides: expected a dict of fields or a",
    ),  # type: ignore[arg-type]
    (
        lambda: mc.load_config("tiny.py").replace({"train.steps": 5}, 5),  # type: ignore[call-overload]
        TypeError,
        "[config] replace: expected no value after a dict of fields, got 5",
    ),
    (
        lambda: mc.Trainer("runs/a").fit(progress="no"),  # type: ignore[arg-type]
        TypeError,
        "[fit] progress: expected True or False, got 'no'",
    ),
    (lambda: mc.plan("runs/a", ranks=0), ValueError, "[plan] ranks: expected a whole number from 1, got 0"),
    (lambda: mc.plan("runs/a", ranks=True), TypeError, "[plan] ranks: expected a whole number"),
    (lambda: mc.plan("runs/a", ranks=1, ranks_per_node=0), ValueError, "[plan] ranks_per_node: expected"),
    (lambda: mc.plan("runs/a", node_memory=-1), ValueError, "[plan] node_memory: expected GiB above 0"),
    (lambda: mc.plan("runs/a", node_memory="1"), TypeError, "got '1'"),  # type: ignore[arg-type]
    (lambda: mc.compare(), ValueError, 'got none; type mc.compare("runs/one", "OTHER_RUN")'),
    (lambda: mc.compare("runs/a"), ValueError, 'got "runs/a" alone; type mc.compare("runs/a", "OTHER_RUN")'),
    (lambda: mc.compare("runs/a", 3), TypeError, "[compare] runs: expected the folders of runs, got 3"),  # type: ignore[arg-type]
    (lambda: mc.compare("runs/a", "runs/a"), ValueError, "expected another run"),
    (lambda: mc.compare("runs/a", "runs/c"), ValueError, "[compare] runs/c: expected the folder of a run"),
    (lambda: mc.export(3, "x"), TypeError, "[export] run: expected a string or a path, got 3"),  # type: ignore[arg-type]
    (lambda: mc.export("runs/a", ""), TypeError, "[export] folder: expected a string or a path, got ''"),
    (lambda: mc.export("runs/a", "runs"), ValueError, "[export] folder: "),
    (lambda: mc.export("runs/a", "x", "adaptor"), ValueError, "did you mean 'adapter'?"),  # type: ignore[arg-type]
    (lambda: mc.export("runs/a", "x", "adapter"), ValueError, 'leave form="adapter" out'),
    (lambda: mc.export("runs/a", "x", base="b"), ValueError, "[export] base: "),
    (lambda: mc.export("runs/a", "x", system="tf"), ValueError, "[export] system: invalid choice: 'tf'"),
    (lambda: mc.export("runs/a", "x", step=99), ValueError, "step 99"),
    (lambda: mc.export("runs/a", "x", step="last"), TypeError, "\"best\" or None, got 'last'"),  # type: ignore[arg-type]
    (
        lambda: mc.export("runs/a", "x", force="yes"),
        TypeError,
        "[export] force: expected True or False, got 'yes'",
    ),  # type: ignore[arg-type]
    (lambda: mc.export("runs/a", "x", overwrite=True), TypeError, "force=True"),  # type: ignore[call-arg]
    (
        lambda: mc.compare("runs/a", "runs/b", html=1),
        TypeError,
        'type mc.compare(first, second).save("page.html")',
    ),  # type: ignore[call-arg]
    (lambda: mc.compare("runs/a", "runs/b", step=1), TypeError, "it has positional arguments only"),  # type: ignore[call-arg]
    (lambda: mc.compare(["runs/a", "runs/b"]), TypeError, "type mc.compare(*runs) for a list"),  # type: ignore[arg-type]
    (lambda: mc.plan("tiny.py", world=2), TypeError, "type mc.plan(config, ranks=2)"),  # type: ignore[call-arg]
    (
        lambda: mc.load_config(3),
        TypeError,
        "[load_config] path: expected a file or a name of mc.list_configs(), got 3",
    ),  # type: ignore[arg-type]
    (lambda: mc.load_run(3), TypeError, "[load_run] path: expected a string or a path, got 3"),  # type: ignore[arg-type]
    (lambda: mc.load_run("runs/a", step="2"), TypeError, "\"best\" or None, got '2'"),  # type: ignore[arg-type]
    (lambda: mc.load_run("runs/a", step=True), TypeError, "[load_run] step: expected a whole number"),
    (lambda: mc.Trainer("tiny.py", 3), TypeError, "[Trainer] workdir: expected a folder or None, got 3"),  # type: ignore[arg-type]
    (
        lambda: mc.load_run("runs/a").generate("a", stream="yes"),
        TypeError,
        "[generate] stream: expected True or False",
    ),  # type: ignore[call-overload]
    (lambda: mc.export("runs/a", "x", form="hf"), ValueError, "None, got 'hf'; type system=\"hf\""),  # type: ignore[arg-type]
    (lambda: mc.export("runs/a", "x", shard_mb=-1), ValueError, "[export] shard_mb: expected a whole number"),
]


@pytest.mark.parametrize("call, kind, says", WRONG)
def test_a_wrong_argument_is_named_as_python_spells_it(
    call: Call, kind: type[Exception], says: str, folder: Path
) -> None:
    with pytest.raises(kind, match=re.escape(says)) as caught:
        call()
    assert not re.search(r"(?<![\w`-])--[a-z]", str(caught.value)) and not (folder / "x").exists()


@pytest.mark.parametrize(
    ("words", "option"), [(["--form=hf"], "--system=hf"), (["--format", "merged"], "--merged")]
)
def test_a_form_or_format_of_the_command_names_the_option(words: list[str], option: str) -> None:
    with pytest.raises(UserError, match=f"expected {option}, got --form"):
        Asked.of(["--workdir=runs/a", "--to=x", *words])


def test_options_become_arguments() -> None:
    text = "[tune] --base: give --step=3 or --base=DIR, --shard-mb; `hf --local-dir x`"
    assert in_python(text, {"--step": "at"}) == (
        '[tune] base: give at=3 or base="DIR", shard_mb; `hf --local-dir x`'
    )
    for program in ("python3 launch.py", "mudd", "/a/launch.py", "python3 ../launch.py"):
        assert in_python(f"bad; {program} export --help shows the options", {}) == "bad"


@pytest.mark.parametrize("name", ["none", "plain", "hf", "peft", "mistral"])
def test_an_error_in_python_contains_no_command_with_arguments_of_python(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {
        "plain/notes.txt": "",
        "hf/config.json": '{"model_type": "bogus", "architectures": ["X"]}',
        "peft/adapter_config.json": '{"base_model_name_or_path": "org/base"}',
        "mistral/params.json": '{"dim": 8}',
    }
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"prompt": "a", "completion": "b"}\n')
    calls: dict[str, Call] = {
        "[export] run": lambda: mc.export(name, "x"),
        "[compare] ": lambda: mc.compare(name, "hf"),
        "[tune] base|[hf]|[interop]": lambda: mc.tune(name, chat, "runs/x"),
        "[tune] base: ": lambda: mc.tune(f"hf://a/{name}", chat, "runs/x"),
    }
    for place, call in calls.items():
        with pytest.raises(ValueError) as caught:
            call()
        text = str(caught.value)
        assert text.startswith(tuple(place.split("|"))), text
        assert not re.search(r'launch\.py .*\w="|local_dir', text), text
