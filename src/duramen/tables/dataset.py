"""Arrow datasets: many files that pyarrow knows as one table, also with columns that their folders name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from duramen.tables.arrow import readable
from duramen.tables.arrow_column import kind_of
from duramen.tables.names import checked_names, few
from duramen.tables.parquet import ArrowTable
from duramen.tables.table import Mark, mark_of

__all__ = ["DatasetTable", "is_dataset"]

_WHAT = "readable by pyarrow"


def is_dataset(source: Any) -> bool:
    """Tell whether something is an Arrow dataset or an Arrow table, without importing pyarrow."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(source).__mro__}
    return bool(names & {"pyarrow._dataset.Dataset", "pyarrow.lib.Table"})


class DatasetTable(ArrowTable):
    """An Arrow dataset, or an Arrow table in memory.

    Files whose columns or types differ are refused here, before a row is read:
    pyarrow itself would fill in missing values.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        schema = source.schema
        self._here = not hasattr(source, "get_fragments")  # a table in memory
        fragments = [] if self._here else _fragments(source)
        files = [Path(one.path) for one in fragments if getattr(one, "path", None)]
        self.path = files[0].parent if files else Path(f"the Arrow {'table' if self._here else 'dataset'}")
        self.columns, self.schema = checked_names(self.path, schema.names), schema
        self.kinds = {field.name: kind_of(field.type) for field in schema}
        for fragment in fragments[1:]:
            _refuse_other(fragments[0], fragment)
        self.n_rows = source.num_rows if self._here else source.count_rows()
        self.nbytes = sum(file.stat().st_size for file in files if file.exists()) or 1
        self.marks: dict[Path, Mark] = {file: mark for file in files if (mark := mark_of(file))}

    def _pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[tuple[Any, float]]:
        if self._here:
            for piece in self._source.select([*columns]).to_batches(max_chunksize=n_rows):
                yield piece, 1.0
            return
        pieces = self._source.to_batches(
            columns=[*columns], batch_size=n_rows, batch_readahead=2, fragment_readahead=1
        )
        while True:
            with readable(self.path, _WHAT):
                piece = next(pieces, None)
                if piece is None:
                    return
                piece.validate(full=True)
            if piece.num_rows:
                yield piece, 1.0


def _fragments(source: Any) -> list[Any]:
    """List the files of a dataset; none where it was filtered, which pyarrow does not tell."""
    try:
        return list(source.get_fragments())
    except ValueError:  # as its ArrowInvalid is
        return []


def _refuse_other(first: Any, other: Any) -> None:
    """Raise ValueError if two files have different columns, or columns of different types."""
    mine, its = ({field.name: str(field.type) for field in one.physical_schema} for one in (first, other))
    for one, there, other_path in ((mine, its, _path(other)), (its, mine, _path(first))):
        lacking = [name for name in one if name not in there]
        if lacking:
            raise ValueError(f"{other_path} has no column {few(lacking)}, which another file has")
    for name, kind in mine.items():
        if its[name] != kind:
            raise ValueError(
                f"{_path(other)}: column {name!r} has type {its[name]}, in {_path(first)} it is {kind}"
            )


def _path(fragment: Any) -> str:
    return str(getattr(fragment, "path", "a part of the dataset"))
