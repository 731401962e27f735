"""Columns that are Arrow arrays: with the file's own types, or as the text of a CSV file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.tables.arrow import arrow
from duramen.tables.column import EXACT, Column, large, refuse_kind
from duramen.tables.kinds import BadCellError, Kind
from duramen.tables.names import shortened

__all__ = ["ArrowColumn", "TextColumn", "kind_of", "looks_like"]

_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def kind_of(dtype: Any) -> Kind:
    """Tell what a column of an Arrow type holds."""
    types = arrow("types")
    if types.is_dictionary(dtype):
        inner = kind_of(dtype.value_type)
        return Kind.CATEGORY if inner in (Kind.WHOLE, Kind.REAL, Kind.SINGLE) else inner
    tests = {
        Kind.EMPTY: types.is_null,
        Kind.FLAG: types.is_boolean,
        Kind.WHOLE: types.is_integer,
        Kind.REAL: lambda held: types.is_float64(held) or types.is_decimal(held),
        Kind.SINGLE: types.is_floating,
        Kind.TEXT: _is_text,
        Kind.TIME: lambda held: types.is_temporal(held) or types.is_duration(held),
    }
    return next((kind for kind, test in tests.items() if test(dtype)), Kind.OTHER)


def _is_text(dtype: Any) -> bool:
    types = arrow("types")
    view = getattr(types, "is_string_view", None)
    return types.is_string(dtype) or types.is_large_string(dtype) or bool(view and view(dtype))


class ArrowColumn(Column):
    """A column of the file's own type."""

    def __init__(self, values: Any, kind: Kind) -> None:
        self.kind = kind
        self.values = values.chunk(0) if values.num_chunks == 1 else _joined(values)

    def numbers(self) -> NDArray[Any]:
        refuse_kind(self.kind, "number")
        pa, types = arrow(""), arrow("types")
        values = self.values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_decimal(values.type) or types.is_null(values.type):
            values = values.cast(pa.float64())
        if types.is_boolean(values.type) and values.null_count:
            values = values.cast(pa.uint8())
        if types.is_int64(values.type) or types.is_uint64(values.type):
            _refuse_large(values)
        return values.to_numpy(zero_copy_only=False)

    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        refuse_kind(self.kind, "text")
        values = _as_text(self.values).dictionary_encode()
        codes = values.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, values.dictionary.to_pylist()

    def whole(self) -> NDArray[np.int64]:
        refuse_kind(self.kind, "whole")
        _refuse_missing(self.values)
        pa = arrow("")
        try:
            return self.values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = self.values.to_numpy(zero_copy_only=False)
            row = int(np.flatnonzero(values > np.iinfo(np.int64).max)[0])
            raise BadCellError(row, f"holds {values[row]}, beyond the largest int64") from None

    def words(self) -> list[str]:
        refuse_kind(self.kind, "text")
        _refuse_missing(self.values)
        return _as_text(self.values).to_pylist()


class TextColumn(Column):
    """A column of a text file: it is read as what is asked for."""

    def __init__(self, values: Any, kind: Kind) -> None:
        self.kind = kind
        self.values = values.chunk(0) if values.num_chunks == 1 else _joined(values)

    def numbers(self) -> NDArray[Any]:
        pa, compute = arrow(""), arrow("compute")
        if self.kind is Kind.FLAG:
            return self.flags()
        values = self._cast(pa.float64(), "a number").to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            over = np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values))
        if over.size:
            texts = compute.utf8_trim_whitespace(self.values.take(pa.array(over)))
            spelled = compute.match_substring_regex(texts, _DIGITS).to_numpy(zero_copy_only=False)
            for place in np.flatnonzero(spelled):
                text = texts[int(place)].as_py()
                if abs(int(text)) > EXACT:
                    raise BadCellError(int(over[place]), *large(text))
        return values

    def flags(self) -> NDArray[Any]:
        pa = arrow("")
        return self._cast(pa.bool_(), "true or false").cast(pa.uint8()).to_numpy(zero_copy_only=False)

    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        return self._typed().texts()

    def whole(self) -> NDArray[np.int64]:
        pa, compute = arrow(""), arrow("compute")
        _refuse_missing(self.values)
        fine = compute.match_substring_regex(self.values, _WHOLE).to_numpy(zero_copy_only=False)
        if not fine.all():
            row = int(np.flatnonzero(~fine)[0])
            shown = shortened(self.values[row].as_py())
            raise BadCellError(row, f"holds {shown!r}, which is not a plain whole number")
        return self._cast(pa.int64(), "an int64").to_numpy(zero_copy_only=False)

    def words(self) -> list[str]:
        return self._typed().words()

    def _typed(self) -> ArrowColumn:
        pa = arrow("")
        return ArrowColumn(pa.chunked_array([self.values]), Kind.TEXT)

    def _cast(self, dtype: Any, what: str) -> Any:
        pa, compute = arrow(""), arrow("compute")
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            trimmed = compute.utf8_trim_whitespace(self.values)
        try:
            return trimmed.cast(dtype)
        except pa.ArrowInvalid:
            row = _first_failing(trimmed, dtype)
        shown = shortened(self.values[row].as_py())
        raise BadCellError(row, f"holds {shown!r}, which is not {what}") from None


def looks_like(values: Any) -> Kind:
    """Tell what the texts of a column look like, as ``kind_of`` does of a typed one."""
    pa, compute = arrow(""), arrow("compute")
    values = values.drop_null()
    if not len(values):
        return Kind.EMPTY
    trimmed = compute.utf8_trim_whitespace(values)
    if _castable(trimmed, pa.float64()):
        if not _all(compute.match_substring_regex(trimmed, _DIGITS)):
            return Kind.REAL
        return Kind.WHOLE if _all(compute.match_substring_regex(trimmed, _WHOLE)) else Kind.CODE
    if _castable(trimmed, pa.bool_()):
        return Kind.FLAG
    if any(_castable(trimmed, dtype) for dtype in (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))):
        return Kind.TIME
    numbers = compute.match_substring_regex(trimmed, _NUMBER).to_numpy(zero_copy_only=False)
    return Kind.MIXED if 2 * numbers.sum() > len(numbers) else Kind.TEXT


def _joined(values: Any) -> Any:
    """Make one array of a column in several pieces."""
    pa = arrow("")
    if pa.types.is_dictionary(values.type):  # the pieces may number their values differently
        values = pa.chunked_array(
            [piece.dictionary_decode() for piece in values.chunks], type=values.type.value_type
        )
    joined = values.combine_chunks()
    return joined if isinstance(joined, pa.Array) else joined.chunk(0)


def _as_text(values: Any) -> Any:
    pa = arrow("")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.large_string())


def _refuse_large(values: Any) -> None:
    compute = arrow("compute")
    ends = compute.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low >= -EXACT and high <= EXACT):
        return
    over = compute.or_kleene(compute.greater(values, EXACT), compute.less(values, -EXACT))
    row = int(np.flatnonzero(over.fill_null(False).to_numpy(zero_copy_only=False))[0])
    raise BadCellError(row, *large(values[row].as_py()))


def _refuse_missing(values: Any) -> None:
    if values.null_count:
        raise BadCellError(
            int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]), "has no value"
        )


def _castable(values: Any, dtype: Any) -> bool:
    try:
        values.cast(dtype)
    except arrow("").ArrowInvalid:
        return False
    return True


def _all(mask: Any) -> bool:
    return bool(mask.to_numpy(zero_copy_only=False).all())


def _first_failing(values: Any, dtype: Any) -> int:
    """Find the first value that cannot be cast, by halving; the cost is that of two casts."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _castable(values.slice(low, middle - low), dtype):
            low = middle
        else:
            high = middle
    return low
