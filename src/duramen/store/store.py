"""The store: a dynamic coreset whose every operation is on the disk before it returns."""

from __future__ import annotations

import copy
import json
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor, distance
from duramen.coreset.save import LossMismatchError, anchor_of, anchor_state
from duramen.dynamic import DynamicCoreset
from duramen.dynamic.persist import (
    SavedState,
    anchor_to_json,
    restore,
    restore_settings,
    settings_from_json,
    state_to_json,
)
from duramen.dynamic.rows import Part
from duramen.dynamic.state import State
from duramen.dynamic.tree import Tree
from duramen.store.blocks import Block, RowLayout
from duramen.store.errors import DamagedStoreError, StoreLockedError, damaged
from duramen.store.file import Content, StoreFile
from duramen.store.lock import WriterLock, now

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["AnchorEvent", "Durable", "Store"]


class AnchorEvent(NamedTuple):
    """An anchor that a store had: since when, how it came, and how far it was from the one before."""

    time: str
    what: str
    n_points: int | None
    radius: float
    moved: float | None


class Durable(DynamicCoreset):
    """A dynamic coreset in memory, and the file that it was read from.

    Invariants
    ----------
    1. Outside of a transaction, the file holds what is here in memory.
    """

    def __init__(
        self, file: StoreFile, lock: WriterLock | None, loss: Any = None, sampler: Any = None
    ) -> None:
        self._file, self._writer = file, lock
        self._pid, self._closed, self._cut_off = os.getpid(), False, False
        self._depth, self._undone = 0, False
        self._origin = "the first"  # what an anchor is that comes with rows
        self._here: State | None = None
        self._notes: dict[str, Any] = {}
        self._history: tuple[AnchorEvent, ...] = ()
        self._seen_anchor: Anchor | None = None
        self._seen_tree: Tree | None = None
        self._lock = threading.RLock()
        self._load(loss, sampler)
        self._finalizer = weakref.finalize(self, _shut, file, lock, self._pid)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._file.path

    @property
    def read_only(self) -> bool:
        """Whether it was opened only to be read."""
        return self._file.read_only

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Take all operations inside for one: they are committed together at the end, or none is.

        Many small operations are much faster so. An error that leaves the block
        undoes all of them. Other threads wait until the block ends; other tasks of
        the same thread do not, and would become part of it: do not await or yield inside.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import duramen as dm
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "customers.duramen"
        >>> with dm.open_store(path, create=True, loss=dm.KMeansLoss(1), size=100) as store:
        ...     try:
        ...         with store.transaction():
        ...             ids = store.insert([[0.0], [1.0]])
        ...             store.delete(7)
        ...     except KeyError as error:
        ...         print(error, len(store))
        'id 7 is not here; it was deleted or never inserted' 0
        >>> folder.cleanup()
        """
        with self._lock:
            self._refuse_unwritable()
            if self._depth:
                with self._inner():
                    yield
            else:
                with self._outer():
                    yield

    # memory and file

    @property
    def _state(self) -> State | None:
        """The state in memory: whoever asks for it comes through here, and waits while it is read anew."""
        with self._lock:
            self._door()
            return self._here

    @_state.setter
    def _state(self, state: State | None) -> None:
        self._here = state

    def _door(self) -> None:
        """Raise if the store is closed, belongs to another process, or lost its file."""
        if self._closed:
            raise ValueError(f"the store {self._file.path} is closed; open it again")
        if self._pid != os.getpid():
            raise RuntimeError(
                f"the store {self._file.path} was opened before this process was forked; open it in one that "
                "was started by spawn or forkserver"
            )
        if self._cut_off:
            raise RuntimeError(
                f"the store {self._file.path} could not be read again after an error; what was committed is "
                "in the file: close it and open it again"
            )

    def _refuse_unwritable(self) -> None:
        self._door()
        if self.read_only:
            raise PermissionError(f"the store {self.path} was opened with read_only=True; open it without")

    def _refuse_in_transaction(self, what: str) -> None:
        if self._depth:
            raise ValueError(f"{what} cannot be part of a transaction; end the block first")

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, whatever others write meanwhile."""
        try:
            self._file.begin()
            yield
        finally:
            self._file.rollback()

    def _load(self, loss: Any, sampler: Any) -> None:
        """Read all that the file has."""
        with self._snapshot():
            self._take_in(loss, sampler)

    def _take_in(self, loss: Any, sampler: Any) -> None:
        self._version = self._file.version
        content = self._file.read()
        try:
            self._fill(content, loss, sampler)
        except LossMismatchError as error:
            raise ValueError(f"{self._file.path} {error}") from None
        except (AssertionError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
            if isinstance(error, DamagedStoreError):
                raise
            if "of your own" in str(error):
                raise TypeError(f"{self._file.path} {error}") from None
            raise damaged(self._file.path, str(error)) from error

    def _fill(self, content: Content, loss: Any, sampler: Any) -> None:
        facts, n = content.facts, content.n_points
        here = facts["state"]
        if not hasattr(self, "_settings"):  # later the lock, and who waits for it, must stay
            super().__init__(**settings_from_json(facts["settings"], loss, sampler))
        self._let_go()
        restore_settings(self, int(facts["settings"]["seed"]), facts["given"])
        said = facts["anchor"]
        anchor = None if said is None else anchor_of({**said, "ids": np.sort(content.sample).tolist()})
        late, named = np.zeros(n, dtype=bool), here.get("named", False)
        if len(content.names or ()) != (n if named else 0):
            raise ValueError("names are missing")
        known = SavedState(here, anchor, content.names, content.sample, late, content.places)
        restore(self, n, _counted(content, late), known)
        self._notes, self._audit = facts["notes"], bool(facts["audit"])
        self._history = tuple(AnchorEvent(*event) for event in facts["history"])
        self._seen_anchor, self._seen_tree, self._seen_given = self.anchor, self._tree, self._settings.given
        if self._seen_tree is not None:
            self._seen_tree.buckets.touched = set()
        self._changed, self._is_spared = False, False

    def _let_go(self) -> None:
        """Free the memory of the state that is here."""
        here, self._here, self._core, self._seen_tree = self._here, None, None, None
        if here is not None:
            here.unlink()

    @property
    def _tree(self) -> Tree | None:
        view = None if self._here is None else self._here.candidates
        return view.engine if view is not None and isinstance(view.engine, Tree) else None

    def _mark(self) -> tuple[Any, ...]:
        """Tell apart states in memory."""
        here = self._here
        inside = None if here is None else (id(here), here.version, here.ids.next, here.validator.columns)
        return inside, self._first_outliers, self._first_id, self._settings, self._changed

    @contextmanager
    def _outer(self) -> Iterator[None]:
        before = self._mark()
        try:
            self._depth, self._undone = 1, False
            self._file.begin()
            yield
            self._refuse_undone()
            if self._mark() != before:
                self._write_rest()
                self._file.commit()
                self._changed = False
            else:
                self._file.rollback()
        except BaseException:
            if not self._undone:
                self._undo(before)
            raise
        finally:
            self._depth = 0
        self._file.sweep()

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """Be part of a transaction, which ends at once if this fails halfway."""
        self._refuse_undone()
        before = self._mark()
        self._depth += 1
        try:
            yield
        except BaseException:
            if not self._undone and self._mark() != before:
                self._undo(None)
                self._undone = True
            raise
        finally:
            self._depth -= 1

    def _refuse_undone(self) -> None:
        if self._undone:
            raise RuntimeError(f"{self.path}: this transaction was undone when an operation in it failed")

    def _undo(self, before: tuple[Any, ...] | None) -> None:
        """Go back to what the file has."""
        try:
            self._file.rollback()
            if before is None or self._mark() != before:
                self._file.has_traces = not self.read_only  # of what was to be written
                self._file.sweep()
                self._load(self.loss, self._settings.sampler)
        except BaseException:
            self._cut_off = True
            raise

    def _block(self, numbers: Array) -> Block:
        """Give points as they go into the file."""
        state = self._sound()
        here, one = state.slots, len(numbers) == 1  # for which a search of its own is quicker
        slots = np.array([here.find(int(numbers[0]))]) if one else here.index.find_many(numbers)
        late = (
            np.zeros(len(slots), dtype=bool)
            if state.candidates is None
            else state.candidates.are_changed(slots)
        )
        epochs = np.where(late, self._file.epoch, self._file.epoch - 1)
        labels = None if here.y is None else here.y[slots]
        rows = here.row(int(slots[0]))[None] if one else here.rows(slots)
        return Block(here.ids[slots], epochs, here.weights[slots], labels, rows)

    def _as_before(self, state: dict[str, Any]) -> None:
        """Be what a state of another store says, beside the points: which ids come next, and the columns."""
        self._skip_ids(int(state["next_id"]))
        if self._here is not None:
            columns = state["gate"]["columns"]
            self._here.validator.columns = None if columns is None else tuple(columns)

    def _note_anchor(self, what: str, *, always: bool = False) -> None:
        """Write down an anchor that is new, or that everything was seen from anew."""
        anchor, old = self.anchor, self._seen_anchor
        if anchor is None or (anchor is old and not always):
            return
        alike = old is not None and old.theta.shape == anchor.theta.shape
        moved = distance(old.theta, anchor.theta) if old is not None and alike else None
        self._history = (*self._history, AnchorEvent(now(), what, self.n_points, anchor.radius, moved))
        self._file.epoch += 1
        self._file.set_sample(sorted(self._sound().sample))
        self._file.facts.put("anchor", anchor_state(replace(anchor, ids=np.empty(0, dtype=np.int64))))
        self._file.facts.put("history", [list(event) for event in self._history])
        self._seen_anchor = anchor

    def _write_rest(self) -> None:
        """Write what changed beside the points."""
        self._file.facts.put("state", state_to_json(self))
        if self._settings.given is not self._seen_given:
            self._file.facts.put("given", anchor_to_json(self._settings.given))
            self._seen_given = self._settings.given
        if self._here is not None and not self._is_spared:
            self._file.spare.put("spare-state", state_to_json(self))
            self._is_spared = True
        tree = self._tree
        if tree is not None:
            order, ids = tree.buckets.order, self._sound().slots.ids
            anew = tree is not self._seen_tree or tree.buckets.touched is None
            touched = range(len(order)) if anew else sorted(tree.buckets.touched or ())
            places = [place for place in touched if place < len(order)]
            mine = ids[[order[place] for place in places]] if places else ids[:0]
            self._file.set_places(np.array(places, dtype=np.int64), mine, len(order), anew=anew)
            self._seen_tree, tree.buckets.touched = tree, set()


def _counted(content: Content, late: Array) -> Iterator[Part]:
    """Give the points of blocks, and note which of them are late."""
    start = 0
    for ids, epochs, weights, labels, rows in content.blocks:
        end = start + len(ids)
        late[start:end] = (epochs == content.epoch) & (content.epoch > 0)
        yield Part(ids, weights, labels, rows)
        start = end


def _shut(file: StoreFile, lock: WriterLock | None, pid: int) -> None:
    """Close the file and give the lock back, also for a store that nobody closed; not after a fork."""
    if pid != os.getpid():
        return
    try:
        file.sweep()
        file.close()
    finally:
        if lock is not None:
            lock.release()


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
        layout, names = _layout(state), state.ids.names
        if self._file.blocks is None:
            self._file.begin_table(layout)
        step = max(layout.capacity, _BYTES // layout.row_bytes)
        for start in range(0, len(numbers), step):
            some = numbers[start : start + step]
            self._file.add(self._block(some), None if names is None else state.ids.names_of(some))

    def delete(self, ids: Any) -> None:
        with self.transaction():
            slots = self._find(ids)
            if not len(slots):
                return
            state = self._sound()
            numbers = state.slots.ids[slots]
            names = state.ids.names
            shown = numbers.tolist() if names is None else state.ids.names_of(numbers).tolist()
            super().delete(numbers)
            self._file.remove(numbers)
            if self._audit:
                self._file.note_forgotten(shown, now())

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        with self.transaction():
            slots = self._find(ids)
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
            self._take_in(self.loss, self._settings.sampler)
        content = self._file.read()
        for block in content.blocks:
            if not _same(block, self._block(block.ids), self._file.epoch):
                raise damaged(self.path, "a block holds other points than memory")
        self._file.check_members()
        self._file.forgotten()
        if content.n_points != self.n_points:
            raise damaged(self.path, f"it has {content.n_points} points, and memory {self.n_points}")
        if content.facts["state"] != state_to_json(self) or content.facts["notes"] != self._notes:
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


def _layout(state: State) -> RowLayout:
    return RowLayout(state.validator.n_columns, state.validator.dtype, state.validator.labelled)
