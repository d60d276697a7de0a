"""mc.load_run of damaged folders of transformers: every error is a UserError or a FormatError."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import mudd_core as mc
from hf_models import make
from mudd_core.base.errors import FormatError, UserError
from mudd_core.base.types import Json
from mudd_core.data.tokenizers.files import tokenizer_files
from mudd_core.data.tokenizers.tokenizer import ByteTokenizer

VALUES: list[Json] = [
    None,
    True,
    -1,
    0,
    3,
    2**31,
    10**30,
    0.5,
    float("inf"),
    "x",
    "",
    [],
    [1, "a"],
    {},
    {"a": 1},
]
SHAPES: list[Json] = [[1], [2, 3], "F64", "I32"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_damaged_folder_is_refused_by_an_error_of_ours(name: str, tmp_path: Path) -> None:
    make(name, tmp_path / name)
    for file, data in tokenizer_files(ByteTokenizer()).items():
        (tmp_path / name / file).write_bytes(data)
    draw = random.Random(name)
    refused = 0
    for _ in range(60):
        shutil.copytree(tmp_path / name, tmp_path / "damaged")
        _damage(tmp_path / "damaged", draw)
        try:
            run = mc.load_run(tmp_path / "damaged")
            assert run.model is not None
            run.generate("ab", max_tokens=1)
        except (UserError, FormatError):
            refused += 1
        shutil.rmtree(tmp_path / "damaged")
    assert refused > 10


@pytest.mark.parametrize("change", ["activation", "heads", "shape", "missing"])
def test_settings_and_weights_that_do_not_fit(change: str, tmp_path: Path) -> None:
    make("gpt2", tmp_path)
    file = tmp_path / "config.json"
    settings = json.loads(file.read_text())
    changes: dict[str, Callable[[], object]] = {
        "activation": lambda: settings.update(activation_function=10**30),
        "heads": lambda: settings.pop("n_head"),
        "shape": lambda: settings.pop("n_positions"),
        "missing": lambda: settings.update(n_layer=3),
    }
    changes[change]()
    file.write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"\[(hf|interop)\] "):
        mc.load_run(tmp_path)


def _damage(folder: Path, draw: random.Random) -> None:
    """Change one value in one file, or truncate the file."""
    file = draw.choice(sorted(folder.iterdir()))
    if draw.random() < 0.6:
        file = folder / "config.json"
    data = file.read_bytes()
    if draw.random() < 0.1:
        file.write_bytes(data[: draw.randrange(len(data))])
        return
    if file.suffix == ".json":
        file.write_text(json.dumps(_changed(json.loads(data), draw)))
        return
    if file.suffix == ".safetensors":
        end = 8 + int.from_bytes(data[:8], "little")
        header = json.dumps(_changed(json.loads(data[8:end]), draw)).encode()
        file.write_bytes(len(header).to_bytes(8, "little") + header + data[end:])


def _changed(whole: dict[str, Json], draw: random.Random) -> dict[str, Json]:
    """Replace or remove one key of an object, or of an object in it."""
    part = whole
    for _ in range(2):
        inner = [value for value in part.values() if isinstance(value, dict) and value]
        if inner and draw.random() < 0.6:
            part = draw.choice(inner)
    with contextlib.suppress(IndexError):  # an empty object
        key = draw.choice(sorted(part))
        if draw.random() < 0.25:
            del part[key]
        else:
            part[key] = draw.choice(VALUES + SHAPES)
    return whole
