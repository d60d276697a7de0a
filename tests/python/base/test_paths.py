"""URLs in place of a local path: every option exits with code 2 before anything is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import mudd_core as mc
from mudd_core.base.errors import UserError
from mudd_core.base.paths import local, url_fault
from mudd_core.checkpoint import load_weights
from mudd_core.cli import main
from mudd_core.config import DataConfig
from mudd_core.data import prepare
from mudd_core.interop import load_original

URL = "gs://bucket/run"
TRAIN = ["train", "--config=tiny.py"]
COMMANDS = {
    "data.cache_dir": ["data", "--config=tiny.py", "data.cache_dir=s3://bucket/cache"],
    "start.load_parameters_path": [*TRAIN, "--workdir=w", "start.load_parameters_path=hf://owner/model"],
    "config": ["train", "--config=gs://bucket/small.py"],
    "import": ["import", "hf://owner/model", "--workdir=w"],
    "import workdir": ["import", "w", f"--workdir={URL}"],
    "import settings": ["import", "w", "--workdir=w", f"--settings={URL}"],
    "export to": ["export", "--workdir=w", "--to=s3://bucket/model"],
    "grow": ["grow", "--config=tokenformer/tiny.py", f"--from={URL}", "--workdir=w"],
    "grow workdir": ["grow", "--config=tokenformer/tiny.py", "--from=w", f"--workdir={URL}"],
    "weights out": ["weights", "--workdir=w", f"--out={URL}"],
    "mup check": ["mup", "check", f"--out={URL}"],
    "mup transfer": ["mup", "transfer", f"--out={URL}"],
    "bakeoff": ["bakeoff", f"--out={URL}"],
    "profile": ["profile", "--config=tiny.py", "--trace=gs://bucket/step.json.gz"],
}


BUCKETS = {
    "data.path": [*TRAIN, "--workdir=w", f"data.path={URL}"],
    "data.tokenizer": [*TRAIN, "--workdir=w", "data.tokenizer=gs://host/tokenizer.json"],
    "workdir": [*TRAIN, f"--workdir={URL}"],
    "plan": [*TRAIN, "--plan", f"--workdir={URL}"],
    "validate": ["validate", f"--workdir={URL}"],
    "sample": ["sample", "--config=tiny.py", f"--workdir={URL}"],
    "report": ["report", f"--workdir={URL}"],
    "export": ["export", f"--workdir={URL}", "--to=w"],
    "weights": ["weights", f"--workdir={URL}"],
}


@pytest.mark.parametrize("name", BUCKETS)
def test_a_bucket_without_its_package_exits_with_2_and_names_the_extra_and_the_map(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    monkeypatch.chdir(tmp_path)
    assert main(BUCKETS[name]) == 2
    told = capsys.readouterr().err
    assert "run setup cloud" in told and "storage.map=PREFIX=FOLDER" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_url_exits_with_2_and_says_what_to_do(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(COMMANDS[name]) == 2
    told = capsys.readouterr().err
    assert "got the URL '" in told and "copy the files to or from a local folder" in told
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_web_address_as_data_names_the_download(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.setitem(sys.modules, "fsspec.implementations.http", None)
    monkeypatch.chdir(tmp_path)
    url = f"{scheme}://host.invalid/texts/a b.txt?v=1"
    assert main(["--config=tiny.py", f"data.path={url}", "--workdir=r"]) == 2
    assert (
        capsys.readouterr()
        .err.rstrip()
        .endswith(f"then pass the file 'a b.txt': curl -L -o 'a b.txt' '{url}'")
    )
    assert main(["--config=tiny.py", "data.path=HTTPS://example.org/a.txt"]) == 2
    assert "curl -L -o a.txt https://example.org/a.txt" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_is_not_written_to_a_web_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config=tiny.py", "--workdir=https://example.org/run"]) == 2
    told = capsys.readouterr().err
    assert "expected a folder or the URL of a bucket (gs://, s3://), got 'https://example.org/run'" in told
    assert "curl" not in told


def test_from_python() -> None:
    config = mc.load_config("tiny.py")
    with pytest.raises(UserError, match=r"\[workdir\] path: expected a local path, got the URL"):
        mc.Trainer(config, Path(URL))  # one slash is lost
    for call in (
        lambda: mc.load_config(URL),
        lambda: prepare(DataConfig(path=URL)),
        lambda: prepare(DataConfig(cache_dir=URL)),
        lambda: load_weights(URL),
        lambda: load_original("hf", URL, {}),
    ):
        with pytest.raises(UserError, match="got the URL"):
            call()


def test_half_a_surrogate_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"\[workdir\] path: .* got '\\ud800' with an unpaired surrogate"):
        local("\ud800", "[workdir] path")


def test_what_is_a_url() -> None:
    for url in ("gs://b/r", "S3://b", "hf://o/m", "az+x://c", Path("gs://b/r")):
        assert url_fault(url), url
    assert "without file://" in str(url_fault("file:///tmp/run"))
    for path in (
        "",
        "run",
        "/tmp/gs:/x",
        "a:b",
        "gs:",
        "./gs://b",
        "C:/run",
        Path("C:/run"),
        Path("run/gs:/x"),
    ):
        assert url_fault(path) is None, path
    for name in ("x" * 256, "a/" + "é" * 128 + "/b", "a\0b"):
        with pytest.raises(UserError, match=r"\[place\] name: expected"):
            local(name, "[place] name")
    assert local("x" * 255, "[place] name").name == "x" * 255


def test_output_that_cannot_be_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["mup", "check", "--steps=0", f"--out={out}"]) == 2
        assert "[mup check] --out: expected a folder that can be written" in capsys.readouterr().err
        assert main(["mup", "transfer", "--low=-3", "--high=-2", "--step=1", f"--out={out}"]) == 2
        assert "[mup transfer] --out: expected a folder" in capsys.readouterr().err
