"""Records of steps: files, levels, memory that no op writes, and hostile bytes."""

from __future__ import annotations

import dataclasses
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest

from mudd_core import _core
from mudd_core.base.errors import UserError
from mudd_core.fingerprint import StepRecord, first_difference
from mudd_core.fingerprint.recording import lines_of
from mudd_core.fingerprint.samples import digits_of, samples_of
from planted_flips import engine_of, record
from rank_runs import batch_of

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz" / "python"))
from mutation import change_bytes
from run_readers import change_lines

_WRITE = """
import sys
from pathlib import Path
import mudd_core as mc
from planted_flips import SMALL, engine_for, record
shape = SMALL | {"d_model": 40, "n_layer": 2, "n_head": 2}
for config in (mc.TransformerPPConfig(**shape), mc.MixtralConfig(**shape, d_ff=72, n_expert=4)):
    record(engine_for(config)).write(Path(sys.argv[1]) / config.family)
"""


@pytest.fixture(scope="module")
def some() -> StepRecord:
    return record(engine_of("llama_gqa"))


def test_a_record_survives_its_file(some: StepRecord, tmp_path: Path) -> None:
    file = some.write(tmp_path / "a.jsonl")
    again = StepRecord.read(file)
    assert again == some and first_difference(some, again) is None
    # At most twice the digits of the digests and samples.
    digits = sum(32 + len(digits_of(line.samples, line.dtype)) for line in some.lines)
    assert file.stat().st_size < 2 * digits


@pytest.mark.parametrize(
    ("dtype", "samples"),
    [
        ("float32", (0.5, -0.0, math.inf, 2.0**-149)),
        ("bfloat16", (1.0, -1.5, -math.inf, 2.0**-126)),
        ("float16", (1.0, -65504.0)),
        ("float64", (0.1, -1e300)),
        ("int32", (-1.0, 2.0**31 - 1)),
        ("uint8", (0.0, 255.0)),
    ],
)
def test_samples_are_exact(dtype: str, samples: tuple[float, ...]) -> None:
    found = samples_of(digits_of(samples, dtype), dtype, 8)
    assert found is not None and list(map(repr, found)) == list(map(repr, samples))
    assert samples_of(digits_of(samples, dtype), dtype, len(samples) - 1) is None
    nan = samples_of(digits_of((math.nan,), "bfloat16"), "bfloat16", 8)
    assert nan is not None and math.isnan(nan[0])


def test_levels_write_equal_records(tmp_path: Path) -> None:
    levels = ("portable", "avx2", "avx512")
    for level in levels:
        (tmp_path / level).mkdir()
        environment = {"MUDD_MAX_ISA": level, "PYTHONPATH": ":".join(sys.path)}
        command = [sys.executable, "-c", _WRITE, str(tmp_path / level)]
        subprocess.run(command, env=environment, check=True)
    for family in ("transformer_pp", "mixtral"):
        first, *others = (StepRecord.read(tmp_path / level / family) for level in levels)
        assert first.header.isa == "portable"
        for other in others:
            assert first_difference(first, other) is None
            assert [line.digest for line in other.lines] == [line.digest for line in first.lines]


@pytest.mark.parametrize("family", ["mixtral", "mudd_experts", "mudd", "tokenformer"])
def test_no_digest_has_memory_that_no_op_wrote(family: str) -> None:
    engine = engine_of(family)
    batch = {name: array[:2] for name, array in batch_of(engine.config, 0).items()}
    lines = []
    for poison in (False, True):
        planned = engine.model.plan("train", *batch["inputs"].shape, gradient_rows=False, poison=poison)
        planned.fill(batch)
        fingerprint = _core.Fingerprint()
        planned.executor.observe(fingerprint)
        planned.executor.run()
        lines.append(lines_of(fingerprint))
    assert lines[0] == lines[1]


def test_other_micro_batches_have_no_difference_in_the_whole_step(some: StepRecord) -> None:
    other = record(engine_of("llama_gqa", micro_batch_size=4))
    assert first_difference(some, other) is None
    changed = [
        dataclasses.replace(line, digest="0" * 32) if line.key.stage == "update" else line
        for line in other.lines
    ]
    found = first_difference(some, dataclasses.replace(other, lines=tuple(changed)))
    assert found is not None and found.a.key.stage == "update"


def test_records_that_cannot_be_compared_are_refused(some: StepRecord) -> None:
    half = record(engine_of("llama_gqa", precision="bf16"))
    with pytest.raises(UserError, match="expected records of one precision, got fp32 and bf16"):
        first_difference(some, half)
    with pytest.raises(UserError, match="without a common value"):
        first_difference(some, dataclasses.replace(some, lines=()))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the first line is no header"),
        (b"PK\x03\x04\n", "line 1 is no JSON"),
        (
            b'{"format":1,"step":1}\n{"stage":"forward"}\n',
            "expected format 2, got 1: another version wrote it",
        ),
        (b'{"format":3,"step":1,"new":0}\n', "expected format 2, got 3: another version wrote it"),
        (b'{"format":2,"step":1}\n{"stage":"forward"}\n', "a line is no list of 6 or 7 members"),
        (b'{"format":2,"step":1}\n["data","x","y","float32 2xx","",""]', "expected a type and a shape"),
        (
            b'{"format":2,"step":1}\n["data","x","y","float32 2","%s","0"]' % (b"0" * 32),
            "samples: expected digits",
        ),
        (b'{"format":2,"step":1}\n' + b"[" * 100_000, "line 2 is no JSON"),
        (b'{"format":2,"step":1,"world":' + b"9" * 9000 + b"}", "line 1 is no JSON"),
    ],
)
def test_other_files_are_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_bytes(data)
    with pytest.raises(UserError, match=f"expected a record of diff --record; {reason}"):
        StepRecord.read(file)
    with pytest.raises(UserError, match=r"gone\.jsonl: No such file"):
        StepRecord.read(tmp_path / "gone.jsonl")


def test_mutated_records_are_read_or_refused(some: StepRecord, memory_path: Path) -> None:
    short = dataclasses.replace(some, lines=some.lines[:3] + some.lines[100:103])
    file = short.write(memory_path / "a.jsonl")
    data, draw, refused = file.read_bytes(), random.Random(1), 0
    for number in range(3000):
        file.write_bytes((change_lines if number % 2 else change_bytes)(data, data, draw))
        try:
            StepRecord.read(file).write(memory_path / "b.jsonl")
        except UserError:
            refused += 1
    assert 1500 < refused < 3000


def test_a_record_without_some_lines_is_refused(some: StepRecord, tmp_path: Path) -> None:
    file = some.write(tmp_path / "a.jsonl")
    rows = file.read_bytes().splitlines(keepends=True)
    for kept in (rows[:10], rows[:50] + rows[51:], rows[:1]):
        file.write_bytes(b"".join(kept))
        with pytest.raises(UserError, match="the file is cut or was changed"):
            StepRecord.read(file)
