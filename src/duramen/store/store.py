"""The store: a dynamic coreset whose every operation is on the disk before it returns."""

from __future__ import annotations

import copy
import json
import os
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from duramen.dynamic import DynamicCoreset
from duramen.dynamic.saved import moving_state
from duramen.dynamic.state import State
from duramen.rows import Array
from duramen.store.block import Block, Layout
from duramen.store.durable import AnchorEvent, Durable
from duramen.store.errors import StoreLockedError, damaged
from duramen.store.lock import now

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Store"]

_BYTES = 8 << 20  # of rows that are written together


@final
class Store(Durable):
    """A dynamic coreset in a file; :func:`duramen.open_store` makes and opens it.

    All that a :class:`duramen.DynamicCoreset` can do, it can, and every operation
    is on the disk when it returns: neither the end of the process nor a power
    cut takes it back. An operation that fails has changed nothing, in memory
    or in the file.

    Invariants
    ----------
    1. Outside of a transaction, the file holds what is here in memory.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import duramen as dm
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "customers.duramen"
    >>> with dm.open_store(path, create=True, loss=dm.KMeansLoss(1), size=100) as store:
    ...     ids = store.insert([[0.0], [1.0], [5.0]])
    ...     store.delete(ids[1])
    >>> with dm.open_store(path) as store:
    ...     store.ids
    array([0, 2])
    >>> folder.cleanup()
    """

    # the operations of a dynamic coreset, each with its commit

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        with self.transaction():
            numbers = super().insert(X, y, sample_weight, ids)
            self._note_anchor(self._origin)
            if len(numbers):
                self._add(numbers)
            return numbers

    def _add(self, numbers: Array) -> None:
        """Write points that are new."""
        state = self._sound()
        layout, names = _layout(state), state.roster.names
        if self._file.blocks is None:
            self._file.begin_table(layout)
        step = max(layout.capacity, _BYTES // layout.row_bytes)
        for start in range(0, len(numbers), step):
            some = numbers[start : start + step]
            self._file.add(self._block(some), None if names is None else names.of(some))

    def delete(self, ids: Any) -> None:
        with self.transaction():
            slots = self._found(ids)
            if not len(slots):
                return
            state = self._sound()
            numbers = state.slots.ids[slots]
            names = state.roster.names
            shown = numbers.tolist() if names is None else names.of(numbers).tolist()
            super().delete(numbers)
            self._file.remove(numbers)
            if self._audit:
                self._file.note_forgotten(shown, now())

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        with self.transaction():
            slots = self._found(ids)
            numbers = slots if self._state is None else self._state.slots.ids[slots]
            super().update(numbers, X, y, sample_weight)
            if len(numbers):
                self._file.replace(self._block(numbers))

    def set_outliers(self, n_outliers: float) -> None:
        with self.transaction():
            super().set_outliers(n_outliers)

    def merge(self, other: DynamicCoreset) -> Store:
        if not isinstance(other, DynamicCoreset):
            raise TypeError(f"merge takes a DynamicCoreset; found {type(other).__name__}")
        first, second = sorted((self, other), key=id)  # as two that merge each other do
        with first._lock, second._lock, self.transaction():
            self._origin = "from the other of a merge"
            try:
                super().merge(other)
            finally:
                self._origin = "the first"
            return self

    def reanchor(self, theta: Any = None) -> None:
        with self.transaction():
            super().reanchor(theta)
            self._note_anchor("found anew" if theta is None else "given", always=True)

    # what only a store can do

    def check(self) -> str:
        """Check every page, every checksum and every invariant, and that memory and file agree.

        Cost: several passes over all points.

        Returns
        -------
        str
            What was checked, in words.

        Raises
        ------
        DamagedStoreError
            Naming the damage.
        """
        with self._lock:
            self._refuse_in_transaction("check()")
            self._door()
            with self._snapshot():
                self._check_file()
            try:
                self.check_invariants()
            except AssertionError as error:
                raise damaged(self.path, f"an invariant is broken: {error}") from error
            blocks = 0 if self._file.blocks is None else self._file.blocks.n_blocks
            last = (
                "every invariant holds" if __debug__ else "no invariant was looked at, because of python -O"
            )
            return f"{self.n_points:,} points in {blocks:,} blocks: every page, every checksum and {last}"

    def compact(self) -> None:
        """Make the file as small as it can be, and leave no trace of what was deleted in any of its files.

        Raises
        ------
        StoreLockedError
            If a reader is in the middle of reading, so that the log cannot be emptied; try again.
        """
        with self._lock:
            self._refuse_in_transaction("compact()")
            self._refuse_unwritable()
            with self.transaction():
                self._changed = True
                self._file.pack()
            self._file.shrink()
            if not self._file.empty_log():
                raise StoreLockedError(
                    f"{self.path}: somebody is reading it, so that its log cannot be emptied; try again"
                )

    def refresh(self) -> bool:
        """See what was written since: of one that was opened to be read. Returns whether there was any."""
        with self._lock:
            self._door()
            if not self.read_only or self._file.version == self._version:
                return False
            self._file.look_again()
            self._undo(None)
            return True

    def close(self) -> None:
        """Close the file, and let others write; whatever is asked of the store afterwards is an error."""
        with self._lock:
            if not self._closed and self._pid == os.getpid():
                self._refuse_in_transaction("close()")
                self._closed = True
                self._let_go()
                self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def history(self) -> tuple[AnchorEvent, ...]:
        """The anchors that there were, the latest last."""
        self._door()
        return self._history

    @property
    def audit(self) -> bool:
        """Whether deletions are noted."""
        self._door()
        return self._audit

    @property
    def forgotten(self) -> tuple[tuple[Any, str], ...]:
        """Who was deleted, and when; nothing where the store keeps no such notes."""
        with self._lock:
            self._door()
            return tuple(self._file.forgotten())

    @property
    def notes(self) -> dict[str, Any]:
        """What was noted in the store: a copy."""
        self._door()
        return copy.deepcopy(self._notes)

    def note(self, name: str, value: Any) -> None:
        """Keep a value of JSON's types under a name; None removes it."""
        with self.transaction():
            kept = {**self._notes, name: _as_read(name, value)}
            self._changed = self._file.has_traces = True
            self._notes = {key: one for key, one in kept.items() if one is not None}
            self._file.facts.put("notes", self._notes)

    def __repr__(self) -> str:
        if self._closed:
            return f"Store: {self._file.path}, closed"
        return f"Store: {self._file.path}\n  {super().__repr__()}"

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"a store is a file; open it where it is needed: dm.open_store({str(self.path)!r})")

    def __copy__(self) -> NoReturn:
        self.__getstate__()

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__getstate__()

    def _check_file(self) -> None:
        """See that every page is sound, and that the file holds what is here in memory."""
        problems = self._file.problems()
        if problems:
            raise damaged(self.path, "; ".join(" ".join(text.split()) for text in problems[:3]))
        if self.read_only:
            self._take_in(self.loss, self._settings.recipe.sampler)
        content = self._file.read()
        for block in content.blocks:
            if not _same(block, self._block(block.ids), self._file.epoch):
                raise damaged(self.path, "a block holds other points than memory")
        self._file.check_members()
        self._file.forgotten()
        if content.n_points != self.n_points:
            raise damaged(self.path, f"it has {content.n_points} points, and memory {self.n_points}")
        if content.facts["state"] != moving_state(self) or content.facts["notes"] != self._notes:
            raise damaged(self.path, "what it says of the state is not what is in memory")


def _as_read(name: Any, value: Any) -> Any:
    """Give a note as it will be read again; raise if JSON cannot hold it."""
    if not isinstance(name, str):
        raise TypeError(f"a note is kept under a name, a string; found {name!r}")
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"the note {name!r} is no value of JSON's types ({error}); pass finite numbers, strings, "
            "lists and dicts of them"
        ) from None


def _same(one: Block, other: Block, epoch: int) -> bool:
    if epoch and not np.array_equal(one.epochs == epoch, other.epochs == epoch):
        return False
    pairs = zip(one._replace(epochs=one.ids), other._replace(epochs=other.ids), strict=True)
    return all(mine is theirs is None or np.array_equal(mine, theirs) for mine, theirs in pairs)  # type: ignore[arg-type]


def _layout(state: State) -> Layout:
    return Layout(state.gate.n_columns, state.gate.dtype, state.gate.labelled)
