"""Tables written in every format, and read back whole."""

import gzip
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from duramen.io import EncodedRows


def write_csv(table, path, delimiter=","):
    pa_csv.write_csv(table, path, pa_csv.WriteOptions(delimiter=delimiter))


def write_gzip(table, path):
    plain = path.with_suffix("")
    write_csv(table, plain)
    path.write_bytes(gzip.compress(plain.read_bytes()))


def write_arrow(table, path, new=ipc.new_file):
    with new(path, table.schema) as file:
        file.write_table(table, max_chunksize=7)


def write_npz(table, path):
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    np.savez(path, **{name: c.astype(str) if c.dtype == object else c for name, c in columns.items()})


WRITERS = {
    "a.parquet": lambda table, path: pq.write_table(table, path, row_group_size=max(11, len(table) // 4)),
    "a.csv": write_csv,
    "a.tsv": lambda table, path: write_csv(table, path, "\t"),
    "b.csv.gz": write_gzip,
    "a.arrow": write_arrow,
    "a.arrows": lambda table, path: write_arrow(table, path, ipc.new_stream),
    "a.feather": lambda table, path: feather.write_feather(table, path, chunksize=6),
    "a.npz": write_npz,
}


def write(table, path):
    """Write a table in the format of the suffix."""
    writers = {name[1:]: writer for name, writer in WRITERS.items()}
    writers["".join(path.suffixes)](table, path)
    return path


def written(folder, name, table):
    return write(table, folder / name)


def gathered(encoding, table, n_rows=65536):
    """All rows of a table, after checking how its batches follow each other."""
    parts, first, done = [], 0, 0.0
    for batch, rows in encoding.read(table, n_rows):
        assert batch.first == first
        assert len(batch) == len(rows) <= n_rows
        assert done <= batch.done <= 1
        first, done = first + len(batch), batch.done
        assert rows.X.flags.c_contiguous
        parts.append(rows)
    assert all(len(part) == n_rows for part in parts[:-1])
    return EncodedRows(
        np.concatenate([part.X for part in parts]), *(_joined(parts, of) for of in ("y", "weights", "ids"))
    )


def _joined(parts, name):
    values = [getattr(part, name) for part in parts]
    if values[0] is None:
        return None
    return [*chain(*values)] if isinstance(values[0], list) else np.concatenate(values)


def arrow_table(**columns):
    return pa.table(columns)


def some_numbers(n=40):
    rng = np.random.default_rng(0)
    return pa.table(
        {"key": np.arange(n), "a": rng.normal(size=n), "b": rng.integers(0, 9, n), "y": np.ones(n)}
    )
