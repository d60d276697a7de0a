"""`data convert` to one file: what it refuses, and what a stopped or failed conversion leaves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core.cli import main
from mudd_core.data.formats import documents
from mudd_core.tools.convert import new_file
from mudd_core.tools.convert.one_file import WRITERS, JsonlWriter, TableWriter
from mudd_core.tools.convert.sources import Row

LAUNCH = Path(__file__).resolve().parents[3] / "launch.py"


def lines(path: Path, records: list[object]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def refused(capsys: pytest.CaptureFixture[str], *words: object, code: int = 2) -> str:
    """Return the error of a command, which must leave no file."""
    folder = Path.cwd()
    before = sorted(os.listdir(folder))
    assert main(["data", "convert", *map(str, words)]) == code
    assert sorted(os.listdir(folder)) == before
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def message(*more: object) -> dict[str, object]:
    return {"role": "assistant", "content": "a", "tool_calls": [{"arguments": one} for one in more]}


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([{"a": 1}, {"a": "x"}], "key 'a' has a whole number in record 0 and text in record 1"),
        (
            [{"a": [{"b": "x"}]}, {"a": [{"b": ["x"]}]}],
            "key 'a[].b' has text in record 0 and a list in record 1",
        ),
        ([{"a": [1]}, {"a": [0.5]}], "key 'a[]' has a whole number in record 0 and a number in record 1"),
        ([{"a": True}, {"a": 1}], "key 'a' has true or false in record 0 and a whole number in record 1"),
        ([{"a": 1 << 63}], "key 'a' has a number of more than 64 bits in record 0"),
        (
            [{"m": [message({"x": 1, "y": 2}, {"y": 2, "x": 1})]}],
            "arguments.x' is in another order in record 0",
        ),
        (
            [{"m": [message({"x": None}, {"x": 1, "y": 1})]}],
            "arguments.x' is null in record 0, which a table cannot",
        ),
        ([{"a": {}}], "key 'a' has only objects without keys"),
        ([{"a": {f"k{n}": 1}} for n in range(1001)], "key 'a' has more than 1,000 different keys"),
    ],
)
def test_records_that_fit_no_table(
    records: list[object], wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = lines(tmp_path / "a.jsonl", records)
    told = refused(capsys, source.name, "--to", "b.parquet")
    assert wanted in told
    typed = shlex.split(told[told.index("or type: ") + len("or type: ") :])
    assert main(typed[typed.index("data") :]) == 0
    assert [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()] == records


def test_objects_without_keys_are_written_to_arrow(tmp_path: Path) -> None:
    records = [{"a": {}, "b": None}, {"a": {}, "b": []}]
    assert main(["data", "convert", str(lines(tmp_path / "a.jsonl", records)), "--to=b.arrow"]) == 0
    assert main(["data", "convert", "b.arrow", "--to=c.jsonl"]) == 0
    assert [json.loads(line) for line in Path("c.jsonl").read_text().splitlines()] == [
        {"a": {}},
        {"a": {}, "b": []},
    ]


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(tmp_path / "a.jsonl", [{"text": "a"}])
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "keyless.jsonl").write_text("{}\n")
    for words, wanted in (
        (
            "a.jsonl --to=b.csv",
            "expected a file that ends in .parquet, .jsonl, .arrow, or a folder, got 'b.csv'",
        ),
        ("a.jsonl --to=a.jsonl", "a.jsonl exists already; remove it or name another file"),
        ("a.jsonl --to=gone/b.jsonl", "gone does not exist; create it: mkdir -p"),
        (
            "gone.jsonl --to=b.jsonl",
            "[data convert] expected a file, a folder or a pattern, got 'gone.jsonl'",
        ),
        ("empty.jsonl --to=b.jsonl", "expected records, got none in"),
        ("empty.jsonl --to=b.arrow", "expected records, got none in"),
        ("keyless.jsonl --to=b.arrow", "expected records, got none in"),
        ("--to=b.jsonl", "SOURCE is missing; type: python3 launch.py data convert my_text --to=b.jsonl"),
        ("a.jsonl", "--to is missing; type: python3 launch.py data convert a.jsonl --to=a.parquet"),
        ("a.jsonl --to=b.jsonl --shards=2", "'b.jsonl' is one file, for which --shards has no meaning"),
        ("a.jsonl --to=b --keep=text", "'b' is a folder, for which --keep has no meaning"),
        ("a.jsonl --to=b.jsonl --document=line", "--document: expected auto for files of jsonl"),
        ("a.txt --to=b.jsonl --keep=text", "--keep: expected files with records, got text"),
        ("a.jsonl --to=b.jsonl --keep=gone", "expected a column of"),
        ("a.jsonl a.txt --to=b.jsonl", "expected files of one format"),
    ):
        assert wanted in refused(capsys, *words.split()), words


def test_a_source_that_is_damaged_or_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text"\n')
    assert "line 2 is not JSON" in refused(capsys, "a.jsonl", "--to=b.parquet", code=65)
    (tmp_path / "a.txt").write_bytes(b"a\xff")
    assert "expected UTF-8 text" in refused(capsys, "a.txt", "--to=b.parquet")
    (tmp_path / "b.jsonl").write_text('{"text": "\\ud800"}\n')
    for ending in WRITERS:
        assert "unpaired surrogate" in refused(capsys, "b.jsonl", f"--to=b2{ending}")


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_without_pyarrow_the_message_installs_it(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet", "pyarrow.ipc"):
        monkeypatch.setitem(sys.modules, name, None)
    lines(tmp_path / "a.jsonl", [{"text": "a"}])
    told = refused(capsys, "a.jsonl", f"--to=b{ending}")
    assert f"--to: expected the package pyarrow to write {ending} files, got none; install it: " in told
    assert main(["data", "convert", "a.jsonl", "--to=b.jsonl"]) == 0


def test_a_file_that_appears_during_the_conversion_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(tmp_path / "a.jsonl", [{"text": "a"}])

    def write(_: JsonlWriter, row: Row) -> None:
        (tmp_path / "b.jsonl").write_text("other")

    monkeypatch.setattr(JsonlWriter, "write", write)
    assert main(["data", "convert", "a.jsonl", "--to=b.jsonl"]) == 2
    assert "b.jsonl exists already" in capsys.readouterr().err
    assert (tmp_path / "b.jsonl").read_text() == "other"


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("ending", tuple(WRITERS))
def test_a_file_system_without_unnamed_files(
    ending: str,
    hidden: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if hidden:
        monkeypatch.setattr(new_file, "_OWN_FILES", "/nowhere")
    lines(tmp_path / "a.jsonl", [{"text": "a"}, {"text": "b"}])
    seen = []
    writer = WRITERS[ending][0]

    def close(self: JsonlWriter | TableWriter) -> None:
        seen.append(sorted(os.listdir(tmp_path)))
        finish(self)  # type: ignore[arg-type]

    finish = writer.close  # type: ignore[attr-defined]
    monkeypatch.setattr(writer, "close", close)
    assert main(["data", "convert", "a.jsonl", f"--to=b{ending}"]) == 0
    assert seen == [[*([f".b{ending}.{os.getpid()}.part"] if hidden else []), "a.jsonl"]]
    assert list(documents(tmp_path / f"b{ending}")) == ["a", "b"]
    assert sorted(os.listdir(tmp_path)) == ["a.jsonl", f"b{ending}"]


# A conversion of the folder that sends itself a signal when it writes its second record.
_SIGNALLED = """
import os, sys
from mudd_core.cli import main
from mudd_core.tools.convert import new_file
from mudd_core.tools.convert.one_file import JsonlWriter
write, count = JsonlWriter.write, 0
def stopped(self, row):
    global count
    count += 1
    write(self, row)
    if count == 2:
        os.kill(os.getpid(), int(sys.argv[1]))
JsonlWriter.write = stopped
if sys.argv[2]:
    new_file._OWN_FILES = "/nowhere"
sys.exit(main(["data", "convert", "a.jsonl", "--to=b.jsonl"]))
"""


@pytest.mark.parametrize(
    ("number", "hidden", "code"),
    [
        (signal.SIGKILL, "", -signal.SIGKILL),
        (signal.SIGTERM, "", 143),
        (signal.SIGTERM, "hidden", 143),
        (signal.SIGINT, "hidden", 130),
    ],
)
def test_a_stopped_conversion_leaves_nothing(
    number: signal.Signals, hidden: str, code: int, tmp_path: Path
) -> None:
    lines(tmp_path / "a.jsonl", [{"text": "a"}] * 5)
    line = [sys.executable, "-c", _SIGNALLED, str(int(number)), hidden]
    assert subprocess.run(line, cwd=tmp_path, capture_output=True, check=False).returncode == code
    assert os.listdir(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize("ending", tuple(WRITERS))
def test_a_full_disk_ends_with_74_and_leaves_nothing(ending: str, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [{"text": os.urandom(3000).hex()} for _ in range(30)])
    line = (
        f"ulimit -f 8; exec {shlex.join([sys.executable, str(LAUNCH)])} data convert a.jsonl --to=b{ending}"
    )
    # The limit would also truncate bytecode that Python writes.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 74
    assert f"b{ending}: File too large; raise the limit of file sizes (ulimit -f)" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["a.jsonl"]


_PEAK = """
import sys
from mudd_core.cli import main
assert main(["data", "convert", sys.argv[1], f"--to={sys.argv[2]}"]) == 0
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


@pytest.mark.parametrize("ending", tuple(WRITERS))
def test_memory_does_not_grow_with_the_source(ending: str, tmp_path: Path) -> None:
    peaks = []
    for count in (50, 110):
        record = json.dumps({"text": "word " * 200_000}) + "\n"  # 1 MB
        (tmp_path / f"{count}.jsonl").write_text(record * count)
        line = [sys.executable, "-c", _PEAK, f"{count}.jsonl", f"out{count}{ending}"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=True)
        peaks.append(int(done.stdout.splitlines()[-1]))
    # KiB: one batch in each of Python, pyarrow and the compressor, of 8 MiB; the sources differ by 60 MB
    assert peaks[1] - peaks[0] < 24 << 10


def test_a_proposed_file_does_not_exist_and_keep_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    lines(Path("a.jsonl"), [{"text": "a"}])
    assert "type: " in (told := refused(capsys, "a.jsonl")) and told.endswith("--to=a.parquet\n")
    Path("a.parquet").touch()
    assert refused(capsys, "a.jsonl").endswith("--to=a_converted.parquet\n")
    for keep in ("--keep=", "--keep=,"):
        assert "--keep: expected names of keys, such as --keep=messages, got none" in refused(
            capsys, "a.jsonl", "--to=b.jsonl", keep
        )
