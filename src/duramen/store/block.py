"""Blocks: rows side by side in one value of the file, so that a million of them are read in a second.

A block is its points in columns, one after the other, in little-endian bytes:
ids, epochs, weights (eight bytes each), labels if there are any, rows. Its
checksum covers its number too, so that no two blocks can be mistaken.

Before and after them stand zeros, as many as it takes for SQLite to put every
byte of a point into overflow pages. Records that share a page are moved when
others come and go, and old copies stay in the gaps of pages, which
``secure_delete`` does not see; overflow pages are one record's alone, never
moved, and overwritten when it goes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, final

import numpy as np

from duramen.rows import Array

__all__ = ["Block", "Layout", "seal"]

_BYTES = 1 << 16  # of rows in a block: a deletion rewrites one, and to read one takes microseconds
_MOST_ROWS = 4096
_PAGE, _HERE = 4096, 489  # bytes of a page, and the least that a record has outside of overflow pages
_FRONT = 496  # zeros before the points: that much, and a multiple of eight
_SIX, _SEAL_BYTES = 1 << 40, 6
_I8, _F8 = np.dtype("<i8"), np.dtype("<f8")


class Block(NamedTuple):
    """Points in columns, and in which epoch each came: how many anchors there had been."""

    ids: Array
    epochs: Array
    weights: Array
    labels: Array | None
    rows: Array

    @property
    def n(self) -> int:
        """How many points there are."""
        return len(self.ids)

    def take(self, which: Array | slice) -> Block:
        """Take some of them."""
        return Block(*(None if column is None else column[which] for column in self))  # type: ignore[arg-type]

    @staticmethod
    def joined(blocks: Sequence[Block]) -> Block:
        """Join blocks, one after the other."""
        columns = zip(*blocks, strict=True)
        return Block(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


@final
class Layout:
    """How points of one table stand in a block.

    Parameters
    ----------
    n_columns : int
    dtype : float32 or float64
    labelled : bool

    Examples
    --------
    >>> layout = Layout(2, np.dtype(np.float32), labelled=False)
    >>> one = Block(np.array([7]), np.array([3]), np.ones(1), None, np.array([[1.0, 2.0]]))
    >>> content = layout.pack(one)
    >>> layout.unpack(content, 1).ids, layout.unpack(content, 1).epochs
    (array([7]), array([3]))
    """

    def __init__(self, n_columns: int, dtype: np.dtype[np.floating], labelled: bool) -> None:
        self.n_columns, self.labelled = n_columns, labelled
        self._native = np.dtype(dtype).newbyteorder("=")
        self._dtype = self._native.newbyteorder("<")
        self._beside = 8 * (3 + labelled)
        self.row_bytes = self._beside + n_columns * self._dtype.itemsize
        self.capacity = max(1, min(_MOST_ROWS, _BYTES // self.row_bytes))

    def pack(self, block: Block) -> bytes:
        """Put a block into bytes."""
        kinds = (_I8, _I8, _F8, _F8, self._dtype)
        columns = [(column, kind) for column, kind in zip(block, kinds, strict=True) if column is not None]
        parts = [np.ascontiguousarray(column, dtype=kind).tobytes() for column, kind in columns]
        length = _FRONT + block.n * self.row_bytes
        return b"".join([bytes(_FRONT), *parts, bytes(_padded(length, block.n) - length)])

    def unpack(self, content: bytes, n: int) -> Block:
        """Read a block of ``n`` points; its arrays are views of the bytes.

        Raises
        ------
        ValueError
            If the bytes are not so many.
        """
        if n < 1 or len(content) != _padded(_FRONT + n * self.row_bytes, n):
            raise ValueError(f"{len(content)} bytes are no {n} rows of {self.row_bytes} bytes")
        starts = [_FRONT + 8 * n * column for column in range(4)]
        ids, epochs = (np.frombuffer(content, _I8, n, start) for start in starts[:2])
        weights = np.frombuffer(content, _F8, n, starts[2])
        labels = np.frombuffer(content, _F8, n, starts[3]) if self.labelled else None
        rows = np.frombuffer(content, self._dtype, n * self.n_columns, _FRONT + self._beside * n)
        return Block(ids, epochs, weights, labels, rows.reshape(n, self.n_columns))

    def cut(self, block: Block) -> Iterator[Block]:
        """Cut points into blocks of at most the capacity."""
        for start in range(0, block.n, self.capacity):
            yield block.take(slice(start, start + self.capacity))


def _padded(length: int, n: int) -> int:
    """Lengthen a block of ``n`` points so that its record fills overflow pages, and least of another page.

    A record of p bytes has 489 + (p - 489) mod 4092 of them, if that is no more than 4061,
    outside of overflow pages: 489 where that leaves no rest.
    """
    padded = length
    for _ in range(2):  # the length of the record's head depends on the result
        beside = 4 + _varint_bytes(12 + 2 * padded) + _integer_bytes(n) + _SEAL_BYTES
        padded = length + (_HERE - length - beside) % (_PAGE - 4)
    return padded


def _varint_bytes(number: int) -> int:
    return -(-number.bit_length() // 7)


def _integer_bytes(number: int) -> int:
    """Count the bytes that SQLite takes for a small positive integer."""
    return 0 if number == 1 else 1 if number < 1 << 7 else 2


def seal(number: int, content: bytes) -> int:
    """Compute the checksum of a block under its number: always of six bytes in SQLite."""
    return _SIX + zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little", signed=True)))
