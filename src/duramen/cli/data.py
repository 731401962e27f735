"""DataFile files as batches of points, through one encoding."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from duramen.cli.classes import with_classes
from duramen.cli.distinct import Distinct, first_twice, numbers, where_twice
from duramen.cli.files import check_data
from duramen.cli.output import Output
from duramen.cli.progress import Bar, bar, watched
from duramen.points import WeightedPoints

if TYPE_CHECKING:
    from duramen.arrays import Array
    from duramen.io import Encoding

__all__ = ["DataFile", "all_points", "learned", "names_in", "open_data", "options_of", "passes", "restated"]


class DataFile(NamedTuple):
    """A table, and how its columns become numbers."""

    table: Any
    encoding: Encoding

    def points(self) -> Iterator[tuple[Any, WeightedPoints]]:
        """Read batches, and make points of each; without a column of ids, the rows' numbers name them."""
        for batch, rows in self.encoding.read(self.table):
            ids = numbers(rows.ids, batch)
            try:
                points = WeightedPoints(rows.X, rows.y, rows.weights, ids)
            except ValueError as error:
                twice = first_twice(np.sort(ids))
                text = restated(str(error), batch) if twice is None else self.where_twice(twice)
                raise ValueError(text) from error
            yield batch, points

    def where_twice(self, twice: int) -> str:
        """Say where the id is whose number comes more than once."""
        return where_twice(self.table, self.encoding, twice)


def open_data(path: Path) -> Any:
    """Open a table."""
    from duramen.io import open_table

    check_data(path)
    return open_table(path)


def learned(
    path: Path, wanted: dict[str, Any], output: Output, loss: str = "", n_classes: int | None = None
) -> DataFile:
    """Open a table and learn how its columns become numbers; and its classes, if the loss is of that kind."""
    from duramen.io import learn_encoding

    table = open_data(path)
    with bar(output, "looking at the columns") as shown:
        encoding = learn_encoding(table, **wanted, each=watched(shown))
    return DataFile(table, with_classes(table, encoding, loss, n_classes, output))


def restated(text: str, batch: Any) -> str:
    """Turn the number of a row in a batch, in what is wrong with it, into its place in the file."""
    return re.sub(r"\brow (\d+)", lambda found: str(batch.place(int(found[1]))), text)


@contextmanager
def options_of(command: str) -> Iterator[None]:
    """Say of advice to pass an option which command takes it, where the one at hand does not."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError or " (--" not in str(error):
            raise
        raise ValueError(f"{error}; these are options of {command}") from error


def passes(data: DataFile, shown: Bar, what: str) -> Callable[[], Iterator[WeightedPoints]]:
    """Give what starts a pass over all points, which moves the bar; the first refuses ids that come twice."""
    begun = 0

    def begin() -> Iterator[WeightedPoints]:
        nonlocal begun
        begun += 1
        seen = Distinct() if begun == 1 and data.encoding.id is not None else None
        shown.begin(f"{what}, pass {begun}")
        for batch, points in data.points():
            if seen is not None:
                seen.add(points.ids)
            yield points
            shown.at(batch.done, batch.first + len(batch))
        if seen is not None and (twice := seen.twice()) is not None:
            raise ValueError(data.where_twice(twice))

    return begin


def all_points(data: DataFile, output: Output) -> WeightedPoints:
    """Read the whole table into memory."""
    with bar(output, "reading") as shown:
        parts = list(passes(data, shown, "reading")())
    if not parts:
        raise ValueError(f"{data.table.path} has no rows")
    return WeightedPoints.concat(parts)


def names_in(data: DataFile, wanted: Array, output: Output) -> dict[int, str] | None:
    """Find the names of numbers, in one more pass; None where ids are numbers themselves."""
    from duramen.dynamic.ids import numbers_of

    if data.encoding.id is None or not data.encoding.text_ids:
        return None
    found: dict[int, str] = {}
    with bar(output, "looking up names") as shown:
        for batch in data.table.batches(columns=[data.encoding.id]):
            ids = batch.column(data.encoding.id).words()
            hashed = numbers_of(ids)
            for row in np.flatnonzero(np.isin(hashed, wanted)).tolist():
                found[int(hashed[row])] = str(ids[row])
            shown.at(batch.done, batch.first + len(batch))
    return found
