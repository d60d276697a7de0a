"""A record of one training step: a header and a line for each value, as a file of JSON lines.

It has no weights: people on two machines compare it without sending a model.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from mudd_core.base.errors import UserError
from mudd_core.base.regular_files import open_binary, write_file
from mudd_core.base.types import Json, JsonObject
from mudd_core.fingerprint.lines import FORMAT, Header, Key, Line, op_of
from mudd_core.fingerprint.parsed import SEAL, Malformed, header_of, line_of, parsed
from mudd_core.fingerprint.samples import digits_of

MOST_BYTES, MOST_LINES = 256 << 20, 1_000_000


@dataclass(frozen=True)
class StepRecord:
    """The values of one training step, in the order in which they were computed."""

    header: Header
    lines: tuple[Line, ...]

    def find(self, key: Key) -> Line | None:
        """Return the line of a value; None if the step has no such value."""
        return next((line for line in self.lines if line.key == key), None)

    def write(self, path: str | Path) -> Path:
        """Write the record to a file, which is complete or not there at all; return its path."""
        target = Path(path)
        head: JsonObject = {name: _json(value) for name, value in asdict(self.header).items()}
        rows = [_row(line_json(line)) for line in self.lines]
        write_file(target, _row({**head, SEAL: _seal(rows)}) + b"".join(rows))
        return target

    @classmethod
    def read(cls, path: str | Path) -> StepRecord:
        """Return the record in a file. Raise UserError for any other file."""
        try:
            texts = _texts(Path(path))
            head = parsed(next(texts, b"{}"), 1)
            header = header_of(head)
            if header.format != FORMAT:
                raise Malformed(f"expected format {FORMAT}, got {header.format}: another version wrote it")
            rest = list(texts)
            lines = tuple(line_of(parsed(row, number)) for number, row in enumerate(rest, 2))
            if isinstance(head, dict) and head.get(SEAL) != _seal(rest):
                raise Malformed(
                    "its lines have another SHA-256 than its header says: the file is cut or was changed"
                )
        except OSError as error:
            raise UserError(f"[diff] {path}: {error.strerror or error}") from None
        except Malformed as error:
            raise UserError(
                f"[diff] {path}: expected a record of diff --record; {error}; record the step again"
            ) from None
        if len({line.key for line in lines}) < len(lines):
            raise UserError(f"[diff] {path}: expected one line for each value, got two of one value")
        return cls(header, lines)


def line_json(line: Line) -> list[Json]:
    """Return a line as a JSON list: stage, place, value, type and shape, digest, samples, and an object of the rest.

    The object has the members that are not zero, and the op unless the place ends with it. It is left out if empty.
    """
    sizes = f" {'x'.join(map(str, line.shape))}" if line.shape else ""
    row: list[Json] = [
        line.key.stage,
        line.key.place,
        line.key.value,
        line.dtype + sizes,
        line.digest,
        digits_of(line.samples, line.dtype),
    ]
    rest: JsonObject = {
        "op": "" if line.op == op_of(line.key.place) else line.op,
        "run": line.key.run,
        "rank": line.key.rank,
        "begin": line.begin,
        "first_row": line.first_row,
        "rows": list(line.rows),
    }
    shown: JsonObject = {name: value for name, value in rest.items() if value}
    return [*row, shown] if shown else row


def _json(value: Json) -> Json:
    """Return a value as JSON has it: NaN and infinities as strings."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _row(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _seal(rows: list[bytes]) -> str:
    """Return the SHA-256 of the lines, so that a file that was cut or changed is refused."""
    return hashlib.sha256(b"".join(rows)).hexdigest()


def _texts(path: Path) -> Iterator[bytes]:
    with open_binary(path) as file:
        size = 0
        for number, row in enumerate(iter(lambda: file.readline(MOST_BYTES + 1), b"")):
            size += len(row)
            if size > MOST_BYTES or number > MOST_LINES:
                raise Malformed(f"expected at most {MOST_BYTES} bytes and {MOST_LINES} lines")
            yield row
