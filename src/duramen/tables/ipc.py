"""Arrow IPC files and streams; Feather is such a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from duramen.tables.arrow import arrow, readable
from duramen.tables.parquet import ArrowTable

__all__ = ["ArrowFile", "ArrowStream"]


class ArrowFile(ArrowTable):
    """An Arrow IPC file: Feather, ``.arrow``."""

    what = "an Arrow IPC or Feather file"

    def __init__(self, path: Path) -> None:
        ipc = arrow("ipc")
        with readable(path, self.what), arrow("").OSFile(str(path)) as raw:
            self._know(path, self._open(ipc, raw, None).schema)

    def _open(self, ipc: Any, raw: Any, options: Any) -> Any:
        return ipc.open_file(raw, options=options)

    def _count(self, reader: Any) -> int | None:
        return reader.num_record_batches

    def _next(self, reader: Any, number: int) -> Any:
        return reader.get_batch(number)

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        pa, ipc = arrow(""), arrow("ipc")
        wanted = sorted(self.columns.index(name) for name in columns)
        options = ipc.IpcReadOptions(included_fields=wanted)
        with pa.OSFile(str(self.path)) as raw:
            with readable(self.path, self.what):
                reader = self._open(ipc, raw, options)
                count = self._count(reader)
            number = 0
            while count is None or number < count:
                with readable(self.path, self.what):
                    try:
                        piece = self._next(reader, number)
                    except StopIteration:
                        return
                    piece.validate(full=True)  # a damaged offset must not be followed
                    share = (number + 1) / count if count else min(1.0, raw.tell() / self.nbytes)
                number += 1
                yield piece, share


class ArrowStream(ArrowFile):
    """An Arrow IPC stream."""

    what = "an Arrow IPC stream"

    def _open(self, ipc: Any, raw: Any, options: Any) -> Any:
        return ipc.open_stream(raw, options=options)

    def _count(self, reader: Any) -> int | None:
        return None

    def _next(self, reader: Any, number: int) -> Any:
        return reader.read_next_batch()
