"""The command clm from its arguments to its end, on a small data set and a small model."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from document_sizes import MIXTRAL
from mudd_core.cli import main
from mudd_core.config import from_dict
from places import ROOT
from printed_hints import require_sample_command_works


def write_documents(file: Path, count: int) -> None:
    file.parent.mkdir(exist_ok=True)
    letters = "etaoin shrdlu "
    texts = [letters[i % 7 :] * 4 + letters[: i % 5] for i in range(count)]
    file.write_text(
        "".join(json.dumps({"text": text, "url": "x"}) + "\n" for text in texts), encoding="utf-8"
    )


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    Path("shape.json").write_text(json.dumps(MIXTRAL), encoding="utf-8")
    for number in (768, 769):
        write_documents(Path(f"c4/c4-train.{number:05d}-of-01024.json"), 30)
    write_documents(Path("val/c4-validation_24567exp.json"), 12)
    return [
        *("clm", "model.config_path=shape.json", "output_dir=out", "max_steps=3", "max_length=16"),
        *("per_device_train_batch_size=4", "exp_name=small", "dataset.train_dataset_path=c4"),
        *("dataset.eval_dataset_path=val", "data.tokenizer=bytes", "eval_frequency=3", "n_eval_examples=9"),
        *("train.threads=1", "sample.max_tokens=1"),
    ]


def without(words: list[str], key: str) -> list[str]:
    return [word for word in words if word.partition("=")[0] != key]


def config(folder: str) -> dict:
    return json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))


def test_a_run_trains_and_leaves_hydras_files(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "lr=1e-4", "dataset.streaming=True"]) == 0
    shown = capsys.readouterr()
    assert "note: dataset.streaming=True: data.cache=full tokenizes" in shown.err
    saved = from_dict(config("out/small"))
    assert (saved.optim.lr, saved.train.batch_size, saved.train.steps) == (1e-4, 4, 3)
    whole = yaml.safe_load(Path("out/small/config.yaml").read_text(encoding="utf-8"))
    assert (whole["run_dir"], whole["global_train_batch_size"]) == ("out/small", 4)
    hydra = Path("out/small/.hydra")
    assert sorted(file.name for file in hydra.iterdir()) == ["config.yaml", "hydra.yaml", "overrides.yaml"]
    job = yaml.safe_load((hydra / "config.yaml").read_text(encoding="utf-8"))
    assert job["run_dir"] == "${path_join:${output_dir},${exp_name}}" and "hydra" not in job
    assert "lr=1e-4" in yaml.safe_load((hydra / "overrides.yaml").read_text(encoding="utf-8"))
    settings = yaml.safe_load((hydra / "hydra.yaml").read_text(encoding="utf-8"))["hydra"]
    assert (
        settings["run"]["dir"] == "out/small"
        and settings["runtime"]["choices"]["sched"] == "WarmupHoldPolicy"
    )
    require_sample_command_works(shown.out)
    capsys.readouterr()
    # the same arguments find the finished run
    assert main([*words, "lr=1e-4", "dataset.streaming=True"]) == 0
    again = capsys.readouterr().out
    assert "is finished." in again
    require_sample_command_works(again)


def test_cfg_job_prints_the_config_and_runs_nothing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--cfg", "job"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["max_steps"] == 3 and printed["sched"]["max_steps"] == "${max_steps}"
    assert main([*words, "--cfg=job", "--resolve"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["sched"]["max_steps"] == 3
    assert not Path("out").exists()


def test_multirun_runs_every_combination(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*without(words, "max_steps"), "--multirun", "max_steps=1,2", "lr=1e-3,1e-4"]) == 0
    runs = [config(f"out/small/{number}") for number in range(4)]
    found = [(run["train"]["steps"], run["optim"]["lr"]) for run in runs]
    assert found == [(1, 1e-3), (1, 1e-4), (2, 1e-3), (2, 1e-4)]
    assert "run 4 of 4: " in capsys.readouterr().out
    assert not Path("out/small/4").exists()


def test_multirun_ends_with_the_first_failure(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*without(words, "max_steps"), "-m", "max_steps=1,0,2"]) == 2
    assert "max_steps: expected a whole number of at least 1, got 0" in capsys.readouterr().err
    assert sorted(path.name for path in Path("out/small").iterdir()) == ["0"]


def test_a_work_directory_of_ones_own(words: list[str]) -> None:
    assert main([*words, "--workdir=elsewhere"]) == 0
    assert Path("elsewhere/.hydra/config.yaml").is_file() and not Path("out").exists()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("max_stepz=1", "did you mean 'max_steps'?"),
        ("nothing_like_it=1", "there is no key 'nothing_like_it'\n"),
        ("sched.warmup_steps=3", "; +sched.warmup_steps=... adds it"),
        ("max_length=0", "[hydra] max_length: expected a whole number of at least 1, got 0"),
        ("+warmup=1", "there is no key 'warmup' in this grammar"),
        ("+warmup_ratio=1", "did you mean 'sched.warmup_ratio'?"),
        ("sched=CosineAnneal", "did you mean 'CosineAnnealing'?"),
        ("lr=1,2", "several values are for --multirun"),
        ("lr=fast", "lr: expected a number, got 'fast'"),
        ("optimizer=Adagrad", "expected ADAMW_TORCH_XLA, AdamW or SGD"),
        ("pipeline_parallelism=2", "pipeline stages are not implemented yet"),
        ("context_parallelism=2", "1.6 to 29 times as long as its computation"),
        ("pad_token_id=0", "pad_token_id=0: not supported"),
        ("gradient_accumulation_steps=3", "expected a divisor of global_train_batch_size (4), got 3"),
        ("+sched.warmup_steps=3", "expected warmup_ratio or warmup_steps, got both"),
        ("model.dtype=float16", "expected bfloat16 or float32"),
        ("--config-name=other", "no config 'other'"),
        ("--config-path=nowhere", "expected a folder"),
        ("--cfg=all", "--cfg: expected job"),
        ("--no-such", "unknown option '--no-such'"),
        ("--config=small.py", "accepts --config-name"),
        ("output_dir=${nothing}", "there is no key 'nothing'"),
    ],
)
def test_an_error_has_exit_code_2_and_the_way_out(
    words: list[str], word: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*without(words, word.partition("=")[0]), word]) == 2
    assert message in capsys.readouterr().err
    assert not Path("out").exists()


def test_the_shape_that_is_not_on_disk(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", "empty")
    rest = without(words, "model.config_path")
    assert main([*rest, "model.name_or_path=gpt2"]) == 2
    told = capsys.readouterr().err
    assert "hf download" in told and "+model.random_init=true" in told
    assert (
        main([*rest, "model.name_or_path=gpt2", "+model.random_init=true", "--explain", "model.n_layer"]) == 0
    )
    assert "model.n_layer = 12" in capsys.readouterr().out


def test_full_errors_show_tracebacks(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*words, "max_stepz=1"]) == 2
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert main([*words, "max_stepz=1"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_explain_names_the_file_and_the_word(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "+experiment=gbs256_tpu", "--explain", "train.seed"]) == 0
    shown = capsys.readouterr().out
    assert "train.seed = 4321" in shown and "gbs256_tpu.yaml" in shown
    assert main([*words, "seed=7", "--explain", "seed"]) == 0
    assert "argument     seed=7" in capsys.readouterr().out


def test_explain_names_the_file_of_the_sizes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("base").mkdir()
    shutil.copy("shape.json", "base/config.json")
    rest = without(words, "model.config_path")
    for word, file in (
        ("model.config_path=shape.json", "shape.json"),
        ("model.config_path=base/config.json", "base/config.json"),
        ("model.name_or_path=base", "base/config.json"),
    ):
        assert main([*rest, word, "--explain", "model.n_layer"]) == 0
        assert f"file         {file}\n" in (shown := capsys.readouterr().out), shown


def test_weights_that_come_with_a_name_are_where_the_run_starts(words: list[str]) -> None:
    first = [*without(words, "exp_name"), "exp_name=first"]
    assert main(first) == 0
    assert main(["export", "--workdir=out/first", "--to=hub"]) == 0
    named = [*without(words, "model.config_path"), "model.name_or_path=hub", "max_grad_norm=0"]
    assert (
        main([*without(without(named, "max_steps"), "exp_name"), "max_steps=1", "lr=0", "exp_name=second"])
        == 0
    )
    assert Path(from_dict(config("out/second")).start.load_parameters_path, "checkpoints", "step-0").is_dir()
    hashes = [
        json.loads(Path(f"out/{name}/summary.json").read_text())["final_hash"] for name in ("first", "second")
    ]
    assert hashes[0] == hashes[1]
    random = [*without(named, "exp_name"), "exp_name=third", "+model.random_init=true"]
    assert main(random) == 0
    assert from_dict(config("out/third")).start.load_parameters_path == ""


def test_a_dry_run_ends_at_its_target_with_a_log_for_the_checker(words: list[str]) -> None:
    more = ("gradient_accumulation_steps=2", "target_eval_loss=9", "do_first_eval=true", "eval_frequency=1")
    assert main([*without(words, "eval_frequency"), *more]) == 0
    text = Path("out/small/mlperf_compliance.log").read_text(encoding="utf-8")
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    values = {line["key"]: line["value"] for line in lines}
    assert (values["train_samples"], values["eval_samples"]) == (60, 9)
    assert (values["gradient_accumulation_steps"], values["micro_batch_size"]) == (2, 2)
    assert [line["key"] for line in lines][-6:] == [
        "block_start",
        "block_stop",
        "eval_start",
        "eval_accuracy",
        "eval_stop",
        "run_stop",
    ]
    assert lines[-1]["metadata"]["status"] == "success" and lines[-1]["metadata"]["samples_count"] == 0


def test_gpt2_has_no_router_and_trains_with_accumulation(words: list[str]) -> None:
    shape = {
        "model_type": "gpt2",
        "n_layer": 1,
        "n_embd": 8,
        "n_head": 2,
        "n_positions": 64,
        "vocab_size": 257,
    }
    Path("shape.json").write_text(json.dumps(shape), encoding="utf-8")
    assert main([*words, "gradient_accumulation_steps=2", "sched.warmup_ratio=0."]) == 0
    saved = from_dict(config("out/small"))
    assert (saved.model.family, saved.loss.normalize, saved.train.micro_batch_size) == (
        "gpt2",
        "micro_mean",
        2,
    )
    assert "moe_aux_loss_coeff" not in Path("out/small/mlperf_compliance.log").read_text(encoding="utf-8")


def test_the_advice_of_a_refused_resume_works(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "lr=1e-4", "--config.train.stop_at=1"]) == 75
    assert main([*words, "lr=2e-4"]) == 2
    lines = capsys.readouterr().err.splitlines()
    advised = shlex.split(lines[lines.index("To resume it as it was:") + 1])
    assert main([*advised[2:], "train.stop_at=0"]) == 0
    longer = [*without(words, "max_steps"), "lr=1e-4", "max_steps=5"]
    assert main(longer) == 2  # max_steps also sets optim.warmup_steps, so no command can only train longer
    told = capsys.readouterr().err
    assert shlex.join(advised[:3]) in told and "start.load_parameters_path=" not in told


def test_a_shape_without_a_name_is_enough(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    shipped = ROOT / "configs" / "clm"
    shutil.copytree(shipped, "conf")
    file = Path("conf/model/blank_model.yaml")
    lines = [line for line in file.read_text().splitlines(True) if "name_or_path" not in line]
    file.write_text("".join(lines) or "{}\n")
    main_file = Path("conf/config.yaml")
    main_file.write_text(
        "".join(x for x in main_file.read_text().splitlines(True) if "name_or_path" not in x)
    )
    assert main([*words, "--config-path", str(Path("conf").absolute()), "--plan"]) == 0, (
        capsys.readouterr().err
    )
