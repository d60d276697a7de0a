"""The MLPerf log: its lines, the lines that a resume keeps, and the result of the benchmark's own checker."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mllog_files import mllog_events
from mudd_core.base.errors import SaveError, UserError
from mudd_core.config import Config, EvalConfig, MixtralConfig, OptimConfig, TrainConfig
from mudd_core.programs.moe.mllog import TOKEN, BenchmarkLog
from mudd_core.run.records.events import StepRecord, Summary, Validation
from mudd_core.run.store.run_folder import BENCHMARK_LOG, RunFolder
from places import TESTS

RULES = TESTS / "data" / "mllog" / "closed_mixture-of-expert.yaml"
CONFIG = Config(
    name="trial",
    model=MixtralConfig(aux_coef=0.02),
    train=TrainConfig(steps=4, batch_size=2, seq_len=8, precision="bf16", log_every=1),
    optim=OptimConfig(lr=2e-5, beta2=0.999, schedule="constant", warmup_steps=1, warmup="between"),
    eval=EvalConfig(target_loss=1.8),
)
TOKENS, LAST = 16, 4


def record(step: int) -> StepRecord:
    return StepRecord(step, step * TOKENS, 2.5, 2e-5, 1.0, 100.0, 0.5, 1.0)


def summary(step: int, stopped: str | None = None) -> Summary:
    return Summary("trial", step, 4, step * TOKENS, 2.5, None, None, 0, 1.0, "", stopped)


class Run:
    """A log with the calls of a training loop that validates after every second step."""

    def __init__(self, folder: Path, step: int = 0) -> None:
        self.said: list[str] = []
        self.log = BenchmarkLog(CONFIG, RunFolder(folder), self.said.append)
        self.log.started((900, 40), step)

    def steps(self, first: int, last: int, loss: float) -> "Run":
        for step in range(first, last + 1):
            self.log.took_step(record(step))
            if step % 2 == 0:
                self.log.evaluating(step)
                self.log.validated(Validation(step, loss if step == LAST else 2.0, 1.0, 10, 0.1))
        return self


def whole_log(folder: Path, loss: float = 1.7) -> list[str]:
    run = Run(folder).steps(1, 4, loss)
    run.log.ended(summary(4))
    run.log.close()
    return run.said


def test_the_events_of_a_run_in_their_order(tmp_path: Path) -> None:
    said = whole_log(tmp_path, 2.0)
    assert (tmp_path / BENCHMARK_LOG).read_text(encoding="utf-8").splitlines() == said
    found = mllog_events(tmp_path)
    keys = [line["key"] for line in found]
    assert keys[:3] == ["cache_clear", "init_start", "submission_benchmark"]
    block = ["block_start", "train_loss", "block_stop", "eval_start", "eval_accuracy", "eval_stop"]
    assert keys[keys.index("init_stop") :] == ["init_stop", "run_start", *block, *block, "run_stop"]
    assert len(set(keys[: keys.index("init_stop")])) == keys.index("init_stop")
    assert list(found[0]) == ["namespace", "time_ms", "event_type", "key", "value", "metadata"]
    assert found[0]["metadata"]["file"] == "mllog.py" and found[0]["metadata"]["lineno"] > 0
    counts = [line["metadata"]["samples_count"] for line in found if line["key"].startswith("block")]
    assert counts == [0, 2 * TOKENS, 2 * TOKENS, 4 * TOKENS]
    assert found[-1]["metadata"]["status"] == "aborted"  # the run did not reach the target
    values = {line["key"]: line["value"] for line in found}
    assert (values["train_samples"], values["eval_samples"], values["eval_accuracy"]) == (900, 40, 2.0)


def test_a_loss_at_the_target_is_success_and_begins_no_block(tmp_path: Path) -> None:
    run = Run(tmp_path).steps(1, 3, 2.0)
    run.log.evaluating(3)
    run.log.validated(Validation(3, 1.8, 1.0, 10, 0.1))
    run.log.ended(summary(3, "target"))
    run.log.close()
    assert [line["key"] for line in mllog_events(tmp_path)][-2:] == ["eval_stop", "run_stop"]
    assert mllog_events(tmp_path)[-1]["metadata"]["status"] == "success"


@pytest.mark.parametrize("killed", [False, True])
def test_a_resumed_run_has_the_log_of_an_unbroken_one(tmp_path: Path, killed: bool) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    whole_log(one)
    run = Run(other).steps(1, 3, 1.7)
    if killed:
        run.log.evaluating(3)  # interrupted during the validation
        with (other / BENCHMARK_LOG).open("a") as file:
            file.write(TOKEN + '{"torn')
    else:
        run.log.ended(summary(3, "SIGTERM"))
        run.log.close()
        assert mllog_events(other)[-1]["metadata"]["status"] == "aborted"
    run = Run(other, step=2).steps(3, 4, 1.7)
    run.log.ended(summary(4))
    run.log.close()

    def shown(folder: Path) -> list[tuple]:
        return [
            (line["key"], line["value"], line["metadata"].get("samples_count"))
            for line in mllog_events(folder)
        ]

    assert shown(other) == shown(one)


def test_a_run_that_breaks_off_has_one_run_stop(tmp_path: Path) -> None:
    run = Run(tmp_path).steps(1, 1, 2.0)
    run.log.close()
    run.log.close()
    assert [line["key"] for line in mllog_events(tmp_path)].count("run_stop") == 1
    assert mllog_events(tmp_path)[-1]["metadata"] | {"lineno": 0, "file": ""} == {
        "file": "",
        "lineno": 0,
        "samples_count": TOKENS,
        "status": "aborted",
    }


def test_a_disk_that_is_full_to_the_end_is_74_with_the_file(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.log._file.close()
    run.log._file = open("/dev/full", "wb", buffering=0)  # noqa: SIM115
    run.steps(1, 1, 2.0)  # the lines stay in the buffer
    with pytest.raises(
        SaveError, match=rf"\[mllog\] .*{BENCHMARK_LOG}: No space left on device; free space there"
    ):
        run.log.close()


def test_a_file_that_cannot_be_written_is_74_before_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPLIANCE_FILE", str(tmp_path / "missing" / "log.txt"))
    with pytest.raises(SaveError, match="COMPLIANCE_FILE names another") as caught:
        BenchmarkLog(CONFIG, RunFolder(tmp_path), print)
    assert caught.value.exit_code == 74
    assert not list(tmp_path.iterdir())


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPLIANCE_FILE", str(tmp_path / "log.txt"))
    whole_log(tmp_path)
    assert (tmp_path / "log.txt").is_file() and not (tmp_path / BENCHMARK_LOG).exists()


def test_a_named_file_keeps_earlier_runs_and_a_resume_cuts_its_own_lines_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, first = tmp_path / "log.txt", tmp_path / "first"
    monkeypatch.setenv("COMPLIANCE_FILE", str(log))
    whole_log(tmp_path)
    earlier = log.read_bytes()
    with log.open("ab") as file:
        file.write(b":::M")  # a kill left an incomplete line
    stopped = Run(tmp_path).steps(1, 3, 1.7)
    stopped.log.close()
    assert log.read_bytes().startswith(earlier + b":::M\n" + TOKEN.encode())
    again = Run(tmp_path, step=2).steps(3, 4, 1.7)
    again.log.ended(summary(4))
    again.log.close()
    data = log.read_bytes()
    assert data.startswith(earlier + b":::M\n" + TOKEN.encode())
    monkeypatch.delenv("COMPLIANCE_FILE")
    first.mkdir()
    whole_log(first)

    def keys(data: bytes) -> list[str]:
        return [json.loads(line.removeprefix(TOKEN.encode()))["key"] for line in data.splitlines()]

    assert keys(data[len(earlier) + 5 :]) == keys((first / BENCHMARK_LOG).read_bytes())


def test_a_resume_takes_no_lines_of_another_run_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.txt"
    monkeypatch.setenv("COMPLIANCE_FILE", str(log))
    whole_log(tmp_path)
    other = log.read_bytes().replace(b'"key": "seed", "value": 0', b'"key": "seed", "value": 7')
    assert other != log.read_bytes()
    log.write_bytes(other)
    Run(tmp_path, step=2).steps(3, 4, 1.7).log.close()
    assert log.read_bytes().startswith(other) and len(log.read_bytes()) > len(other)


@pytest.mark.parametrize("text", ["mine", "mine\n", TOKEN + "{}\nmine\n", "\n\nmine"])
def test_a_file_of_something_else_is_refused_and_kept(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.txt").write_text(text)
    monkeypatch.setenv("COMPLIANCE_FILE", str(tmp_path / "notes.txt"))
    with pytest.raises(UserError, match=r"\[mllog\] .*expected a new file or a log of :::MLLOG lines"):
        BenchmarkLog(CONFIG, RunFolder(tmp_path), print)
    assert (tmp_path / "notes.txt").read_text() == text


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checker that knows the benchmark: one line of closed_common.yaml changed, one file added."""
    spec = importlib.util.find_spec("mlperf_logging")
    assert spec is not None and spec.submodule_search_locations is not None
    root = tmp_path_factory.mktemp("checker")
    package = root / "mlperf_logging" / "compliance_checker"
    source = Path(spec.submodule_search_locations[0]) / "compliance_checker"
    package.parent.mkdir()
    (package.parent / "__init__.py").touch()
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__"))
    common = package / "training_6.1.0" / "closed_common.yaml"
    before = common.read_text(encoding="utf-8")
    common.write_text(before.replace("'dlrmv4'] ", "'dlrmv4', 'mixture-of-expert'] "), encoding="utf-8")
    changed = [
        pair
        for pair in zip(before.splitlines(), common.read_text().splitlines(), strict=True)
        if pair[0] != pair[1]
    ]
    assert len(changed) == 1
    shutil.copy(RULES, package / "training_6.1.0")
    return root


def verdict(checker: Path, log: Path) -> tuple[bool, str]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mlperf_logging.compliance_checker",
            "--usage",
            "training",
            "--ruleset",
            "6.1.0",
            "--log_output",
            str(log.with_suffix(".verdict")),
            str(log),
        ],
        cwd=checker,
        env={"PYTHONPATH": str(checker), "PATH": ""},
        capture_output=True,
        text=True,
    )
    return "SUCCESS" in done.stdout + done.stderr, done.stdout + done.stderr


def test_the_checker_takes_the_log_of_a_run_that_reached_its_target(checker: Path, tmp_path: Path) -> None:
    whole_log(tmp_path)
    passed, text = verdict(checker, tmp_path / BENCHMARK_LOG)
    assert passed, text


@pytest.mark.parametrize("fault", ["loss", "run_stop", "samples"])
def test_the_checker_refuses(checker: Path, tmp_path: Path, fault: str) -> None:
    whole_log(tmp_path, 1.9 if fault == "loss" else 1.7)
    log = tmp_path / BENCHMARK_LOG
    text = log.read_text(encoding="utf-8")
    if fault == "run_stop":
        text = "".join(line for line in text.splitlines(keepends=True) if '"run_stop"' not in line)
    if fault == "samples":
        text = text.replace(f'"samples_count": {4 * TOKENS}', f'"samples_count": {4 * TOKENS - 1}')
    log.write_text(text, encoding="utf-8")
    passed, said = verdict(checker, log)
    assert not passed, said
