"""What is left in a damaged SQLite file, read from its pages one by one, without its indexes.

A leaf page of a table holds whole records (https://www.sqlite.org/fileformat2.html);
long ones go on in overflow pages. A page that was damaged gives records that
make no sense, which the checksums of this library's tables tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

__all__ = ["Record", "carved"]

_PAGE = 4096  # bytes: what stores are made with
_LEAF = 0x0D
_FIRST = 100  # bytes of the file's own header, on its first page
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # how many bytes an integer of each kind has
_CONSTANTS = {0: None, 8: 0, 9: 1}


class Record(NamedTuple):
    """A record: its rowid, and what stands in its columns: int, str, bytes or None."""

    rowid: int
    values: tuple[Any, ...]


def carved(content: bytes) -> Iterator[Record]:
    """Give the records of all leaf pages that can be read at all; some may be nonsense.

    Examples
    --------
    >>> list(carved(bytes(8192)))
    []
    """
    for page in range(0, len(content), _PAGE):
        start = page + (_FIRST if page == 0 else 0)
        if len(content) < start + 8 or content[start] != _LEAF:
            continue
        count = int.from_bytes(content[start + 3 : start + 5], "big")
        for cell in range(min(count, _PAGE // 4)):
            pointer = start + 8 + 2 * cell
            offset = int.from_bytes(content[pointer : pointer + 2], "big")
            try:
                yield _record(content, page, offset)
            except (IndexError, ValueError):
                continue


def _record(content: bytes, page: int, offset: int) -> Record:
    place = page + offset
    size, place = _varint(content, place)
    rowid, place = _varint(content, place)
    payload = _payload(content, place, size, page + _PAGE)
    rowid = rowid - (1 << 64) if rowid >= 1 << 63 else rowid
    return Record(rowid, tuple(_values(payload)))


def _payload(content: bytes, place: int, size: int, end: int) -> bytes:
    """Read a payload: the part on this page, and the overflow pages it goes on in."""
    if size > len(content):
        raise ValueError("longer than the file")
    most = _PAGE - 35
    if size <= most:
        here, left = size, 0
    else:
        least = (_PAGE - 12) * 32 // 255 - 23
        here = least + (size - least) % (_PAGE - 4)
        here = here if here <= most else least
        left = size - here
    if place + here + (4 if left else 0) > end:
        raise ValueError("beyond its page")
    parts = [content[place : place + here]]
    follow = int.from_bytes(content[place + here : place + here + 4], "big") if left else 0
    while left > 0:
        start = (follow - 1) * _PAGE
        if follow < 2 or start + _PAGE > len(content):
            raise ValueError("its overflow page is missing")
        parts.append(content[start + 4 : start + 4 + min(left, _PAGE - 4)])
        follow, left = int.from_bytes(content[start : start + 4], "big"), left - (_PAGE - 4)
    return b"".join(parts)


def _values(payload: bytes) -> Iterator[Any]:
    header, place = _varint(payload, 0)
    body = header
    while place < header:
        kind, place = _varint(payload, place)
        if kind in _INTEGERS:
            value: Any = int.from_bytes(payload[body : body + _INTEGERS[kind]], "big", signed=True)
            body += _INTEGERS[kind]
        elif kind >= 12:
            length = (kind - 12) // 2
            raw = payload[body : body + length]
            value = raw.decode() if kind % 2 else raw
            body += length
        elif kind in _CONSTANTS:
            value = _CONSTANTS[kind]
        else:
            raise ValueError(f"a column of kind {kind}, which no table here has")
        yield value
    if body != len(payload):
        raise ValueError("longer or shorter than it says")


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = 0
    for step in range(8):
        byte = content[place + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + step + 1
    return value << 8 | content[place + 8], place + 9
