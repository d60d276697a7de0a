"""Parquet files of sequences. They are renamed when complete, so a killed run leaves no partial file."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

from mudd_core.base.errors import SaveError, UserError
from mudd_core.base.packages import needed
from mudd_core.base.paths import local
from mudd_core.programs.jax_lm.preprocess.rows import Rows

if TYPE_CHECKING:
    from pyarrow import Table
    from pyarrow.parquet import ParquetWriter

_GROUP_BYTES = 64 << 20  # bytes of the values in a row group


def pyarrow() -> ModuleType:
    """Return pyarrow with its Parquet module loaded; raise UserError, with the install command, if it is missing."""
    needed("pyarrow.parquet", "[preprocess] --output-path", "for Parquet files")
    return needed("pyarrow", "[preprocess] --output-path", "for Parquet files")


class Shards:
    """The files `<prefix>-SSSSS-of-NNNNN`.

    On exit, the context removes temporary files that `commit` has not renamed.
    """

    def __init__(self, prefix: str, count: int, length: int) -> None:
        self._arrow = pyarrow()
        path = local(prefix, "[preprocess] --output-path")
        if not path.name or path.is_dir():
            raise UserError(
                "[preprocess] --output-path: expected a prefix of file names, got the folder "
                f"'{prefix}'; for example {path / 'wikitext.train'}"
            )
        self.files = [path.with_name(f"{path.name}-{i:05}-of-{count:05}") for i in range(count)]
        self._refuse_others(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"[preprocess] --output-path: cannot create {path.parent}: {error.strerror}"
            ) from error
        lists = self._arrow.list_
        self._schema = self._arrow.schema(
            {
                "input_ids": lists(self._arrow.int64()),
                "attention_mask": lists(self._arrow.float32()),
                "labels": lists(self._arrow.int64()),
            }
        )
        self._length, self._group = length, max(1, _GROUP_BYTES // (20 * length))
        self._held: list[Rows] = []
        self._streams: list[BinaryIO] = []
        self._writer: ParquetWriter | None = None
        self._shard = -1

    def _refuse_others(self, path: Path) -> None:
        """Raise UserError for files with another number of shards: a reader would read both sets."""
        others = {Path(name) for name in glob.glob(f"{glob.escape(str(path))}-?????-of-?????")}
        others -= set(self.files)
        if others:
            raise UserError(
                f"[preprocess] --output-path: {min(others)} exists already, with another number of shards; move such "
                "files away, since readers read every file with this prefix"
            )

    def _temporary(self, shard: int) -> Path:
        return self.files[shard].with_name(f".{self.files[shard].name}.partial")

    def begin(self, shard: int) -> None:
        """Close the open shard and open this one; the lock on the first shard protects all shards."""
        self._end_shard()
        self._shard = shard
        path = self._temporary(shard)
        with _saving(path):
            self._streams.append(open(path, "ab"))  # noqa: SIM115
            if shard == 0:
                self._lock(path)
            self._streams[-1].truncate(0)
            self._writer = self._arrow.parquet.ParquetWriter(
                self._streams[-1], self._schema, compression="none"
            )

    def _lock(self, path: Path) -> None:
        try:
            fcntl.flock(self._streams[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.lexists(path) and os.path.samestat(
                os.stat(path), os.fstat(self._streams[0].fileno())
            )
        except BlockingIOError:
            mine = False
        if not mine:
            self._shard = -1  # the files belong to another run
            raise UserError(
                f"[preprocess] another process is writing {self.files[0]}; wait until it has ended"
            )

    def add(self, rows: Rows) -> None:
        """Append sequences to the open shard."""
        self._held.append(rows)
        if sum(map(len, self._held)) >= self._group:
            self._write(whole=False)

    def _write(self, *, whole: bool) -> None:
        """Write the full row groups. whole: write the rest too, at the end of a shard."""
        assert self._writer is not None
        rows = Rows.joined(self._held, self._length)
        first = 0
        with _saving(self._temporary(self._shard)):
            while len(rows) - first >= self._group or (whole and first < len(rows)):
                last = min(first + self._group, len(rows))
                self._writer.write_table(self._table(rows.part(first, last)), row_group_size=self._group)
                first = last
        self._held = [rows.part(first, len(rows))]

    def _table(self, rows: Rows) -> Table:
        offsets = self._arrow.array(range(0, (len(rows) + 1) * self._length, self._length), "int32")
        values = (rows.input_ids, rows.attention_mask, rows.labels)
        columns = [
            self._arrow.ListArray.from_arrays(offsets, self._arrow.array(value.ravel())) for value in values
        ]
        return self._arrow.Table.from_arrays(columns, schema=self._schema)

    def _end_shard(self) -> None:
        if self._writer is None:
            return
        self._write(whole=True)
        with _saving(self._temporary(self._shard)):
            self._writer.close()
            self._streams[-1].flush()
            os.fsync(self._streams[-1].fileno())
            if self._shard:
                self._streams.pop().close()
        self._held, self._writer = [], None

    def commit(self) -> None:
        """Rename all files to their final names."""
        self._end_shard()
        for shard, file in enumerate(self.files):
            with _saving(file):
                os.replace(self._temporary(shard), file)
        with _saving(self.files[0]):
            folder = os.open(self.files[0].parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            with contextlib.suppress(Exception):  # the error that ended the block is reported instead
                self._writer.close()
        for stream in self._streams:
            with contextlib.suppress(OSError):
                stream.close()
        for shard in range(self._shard + 1):
            self._temporary(shard).unlink(missing_ok=True)


@contextlib.contextmanager
def _saving(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SaveError(f"[preprocess] {path}: {error.strerror or error}") from error
