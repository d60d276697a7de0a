"""Output of a start, a resume, and starts that fail at each stage: tests/data/cli/starts.txt.

    python tests/start_screens.py            print the commands of that file with their current output
    python tests/start_screens.py --write    write them into the file

The commands run one after another in one folder, each in a fresh process, both streams together. Lines of updates and
the lines after them are left out; values that differ between machines are masked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from typed_commands import ROOT, launched, write_or_print

sys.path.insert(0, str(ROOT / "tests" / "python"))

from id_cases import write_records
from tiny_run import write_text

FILE = ROOT / "tests" / "data" / "cli" / "starts.txt"
_PROMPT = "$ "
_DATA = "data.path=text data.cache_dir=cache"
_IDS = "data.pipeline=pile data.format=tfrecord model.vocab_size=100 train.batch_size=4 train.seq_len=8"
COMMANDS = (
    f"--config=run.py --workdir=new {_DATA} train.stop_at=2",
    f"--config=run.py --workdir=new {_DATA} train.stop_at=4",
    f"--config=run.py --workdir=new {_DATA} optim.lr=0.1",
    f"--config=run.py --workdir=other {_DATA} train.stop_at=1 train.save=false eval.at_start=true",
    "--config=run.py data.path=nowhere",
    "--config=run.py data.path=empty",
    f"--config=run.py {_DATA} data.tokenizer=nowhere.json",
    f"--config=run.py {_DATA} data.tokenizer=torn.json",
    f"--config=run.py {_IDS} data.path=ids data.eval_path=ids --workdir=ids-run",
    f"--config=run.py {_DATA} --workdir=foreign",
    f"--config=run.py {_DATA} train.batch_size=65536 train.seq_len=16384",
    f"--config=run.py {_DATA} optim.lr=-1",
    f"--config=run.py {_DATA} train.lenght=8",
    f"--config=run.py {_DATA} data.cache_dir=notes.txt",
    f"--config=run.py {_DATA} start.load_parameters_path=nowhere",
    f"--config=run.py {_DATA} log.metrics_file=nowhere/m.jsonl",
    f"--config=run.py {_DATA} --workdir=damaged",
)
_MASKS = (
    (r"ETA about \S+", "ETA about T"),
    (r"(avx\w*|amx\w*|neon|portable)$", "LEVEL"),
    (r"[\d.]+ [KMGTP]iB", "SIZE"),
    (r"but .* leaves", "but ... leaves"),
    (r"; set train\.batch_size.*", "; set ..."),
    (r"^warning: .* cores?, which is slower.*\n", ""),
    (r"^note: other processes take .*\n", ""),
    (r"^(data|setting) .* (\d+ %|\(\d+ s\))\n", ""),  # of a slow machine
)


def prepare(folder: Path) -> None:
    """Write the files that the commands read."""
    for name in ("text", "empty", "foreign"):
        (folder / name).mkdir()
    write_text(folder / "text")
    (folder / "foreign" / "letter.txt").write_text("hello\n", encoding="utf-8")
    (folder / "notes.txt").write_text("notes\n", encoding="utf-8")
    (folder / "torn.json").write_text('{"model": {', encoding="utf-8")
    write_records(folder / "ids" / "pile.tfrecord.b0", [[1, 2, 3, 4, 5, 6, 7, 8, 9]] * 9 + [[1, 2, 100]])
    shutil.copy(ROOT / "tests" / "python" / "tiny_run_config.py", folder / "run.py")


def screen(line: str, folder: Path) -> str:
    """Return the masked output of the command before its first update, and its exit code."""
    done = launched(line, folder, subprocess.STDOUT)
    text, *later = re.split(r"^(?=step +\d|stopped by)", done.stdout, maxsplit=1, flags=re.MULTILINE)
    text += "".join(re.findall(r"^error: .*\n", "".join(later), flags=re.MULTILINE))
    text = re.sub(
        r"^(error|warning): .*", lambda line: line[0].replace(f"{folder}/", ""), text, flags=re.MULTILINE
    )
    text = text.replace(str(ROOT / "launch.py"), "launch.py")
    for pattern, mask in _MASKS:
        text = re.sub(pattern, mask, text, flags=re.MULTILINE)
    return f"{text}exit code {done.returncode}\n"


def text() -> str:
    """Return the text of the file with current output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        prepare(folder)
        shown = []
        for line in COMMANDS:
            if line.endswith("damaged"):  # a run whose only checkpoint is torn
                shutil.copytree(folder / "new", folder / "damaged")
                for file in (folder / "damaged" / "checkpoints").glob("*/model-*"):
                    file.write_bytes(b"x")
            told = screen(line, folder)
            if shown:  # recently written files are read again
                told = re.sub(r"^data: preparing .*\n", "", told)
            shown.append(f"{_PROMPT}{line}\n{told}")
    return "\n".join(shown)


if __name__ == "__main__":
    write_or_print(FILE, text())
