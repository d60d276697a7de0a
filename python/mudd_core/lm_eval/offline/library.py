"""Names in the sources of this Python's standard library that occurred in the lines before."""

from __future__ import annotations

import keyword
import re
import sysconfig
from pathlib import Path

from datasets import Dataset

_MODULES = (
    "argparse.py", "ast.py", "bisect.py", "calendar.py", "collections/__init__.py", "configparser.py", "csv.py",
    "dataclasses.py", "difflib.py", "fractions.py", "functools.py", "heapq.py", "inspect.py", "json/decoder.py",
    "json/encoder.py", "logging/__init__.py", "mimetypes.py", "pathlib.py", "pprint.py", "queue.py", "random.py",
    "shlex.py", "shutil.py", "statistics.py", "string.py", "tempfile.py", "textwrap.py", "timeit.py", "zipfile.py",
)  # fmt: skip
_LINES = 12  # of the context
_EVERY = 8  # lines between two documents of a module
_TRAIN = 10  # one document of every 10 is an example
_NAME = re.compile(r"[A-Za-z_]{5,}")


def _documents(lines: list[str]) -> list[dict[str, str]]:
    """Return the documents of a module: the text, and the name that follows."""
    found = []
    for at in range(_LINES, len(lines), _EVERY):
        before = "\n".join(lines[at - _LINES : at]) + "\n"
        known = set(_NAME.findall(before))
        for match in _NAME.finditer(lines[at]):
            if match[0] in known and not keyword.iskeyword(match[0]) and lines[at][: match.start()].strip():
                found.append({"text": before + lines[at][: match.start()], "name": match[0]})
                break
    return found


def cloze(**_: str | float) -> dict[str, Dataset]:
    """Return the documents by split: text, name. They depend on the version of Python."""
    folder, found = Path(sysconfig.get_path("stdlib")), list[dict[str, str]]()
    for name in _MODULES:
        if (folder / name).is_file():
            found += _documents((folder / name).read_text(encoding="utf-8").splitlines())
    return {
        "test": Dataset.from_list([one for at, one in enumerate(found) if at % _TRAIN]),
        "train": Dataset.from_list(found[::_TRAIN]),
    }
