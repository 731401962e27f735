"""The store: a dynamic coreset whose every operation is on disk before it returns."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

import numpy as np

from duramen.arrays import Array, is_whole
from duramen.coreset.save import anchor_state
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.persist import (
    UNUSED,
    anchor_to_json,
    restore,
    settings_from_json,
    settings_to_json,
    state_to_json,
)
from duramen.dynamic.state import State
from duramen.errors import prefixed
from duramen.files import MismatchError, check_place, json_types
from duramen.losses.base import Anchor, Loss, distance
from duramen.samplers.base import Sampler
from duramen.store.blocks import Block, RowLayout
from duramen.store.connection import StoreLockedError, store_errors
from duramen.store.file import StoreFile, Values
from duramen.store.lock import now

if TYPE_CHECKING:
    from typing_extensions import Self

_BLOCKS = 128  # written together: at most 8 MB of rows


class AnchorEvent(NamedTuple):
    """An anchor in a store's history: since when, its origin, and how far it is from the previous one."""

    time: str
    what: str
    n_points: int | None
    radius: float
    moved: float | None


@final
class Store(DynamicCoreset):
    """A dynamic coreset in a file; :func:`duramen.open_store` creates and opens it.

    It does everything that a :class:`duramen.DynamicCoreset` does, and every operation
    is on disk when it returns: it survives the end of the process and a power
    cut. An operation that fails changes nothing, in memory or in the file.

    Invariants
    ----------
    1. Outside of a transaction, the file agrees with memory.

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

    _closed = _lost_file = False
    _depth, _undone = 0, False  # of transactions; whether the outermost was already undone
    _memory: State | None = None
    _metadata: Values

    def __init__(self, file: StoreFile, given: Values) -> None:
        self._file = file
        settings = file.metadata()["settings"]
        try:
            known = settings_from_json(settings, given.get("loss"), given.get("sampler"))
        except (MismatchError, TypeError) as error:
            raise prefixed(f"{file.path} ", error) from None
        super().__init__(**known)
        with self._snapshot():
            self._restore()
        _check_settings(self, given)
        self._finalizer = weakref.finalize(self, file.close)

    # what a store has beyond a dynamic coreset

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._file.path

    @property
    def read_only(self) -> bool:
        """Whether it was opened only for reading."""
        return self._file.read_only

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all operations inside atomic: they are committed together at the end, or not at all.

        Many small operations are much faster in a transaction. An error that leaves
        the block undoes all of them. Other threads wait until the block ends; other tasks of
        the same thread do not, and would become part of it: do not await or yield inside.
        """
        with self._lock:
            self._check_writable()
            before, outermost = self._memory_version(), not self._depth
            self._depth += 1
            try:
                if outermost:
                    self._file.begin()
                yield
                if outermost:
                    self._commit(before)
            except BaseException:
                if not self._undone and (outermost or self._memory_version() != before):
                    self._undo(before)
                    self._undone = True
                raise
            finally:
                self._depth -= 1
                self._undone &= not outermost
            if outermost:
                self._file.clear_traces()

    def check(self) -> str:
        """Check every page, every checksum and every invariant, and that memory and file agree.

        Returns a summary of what was checked; damage is a DamagedStoreError that names it. Cost: several
        passes over all points.
        """
        with self._outside_transaction():
            with self._snapshot():
                self._check_file()
                self.check_invariants()
            n_blocks = self._file.blocks.totals["n_blocks"]
            last = "every invariant holds" if __debug__ else "no invariant was checked, because of python -O"
            return f"{self.n_points:,} points in {n_blocks:,} blocks: every page, every checksum and {last}"

    def compact(self) -> None:
        """Make the file as small as possible, and erase all traces of deleted rows from all its files.

        While a reader is active, the log cannot be emptied: a StoreLockedError; try again.
        """
        with self._outside_transaction():
            with self.transaction():
                self._file.pack()
            self._file.shrink()
            if not self._file.empty_log():
                raise StoreLockedError(f"{self.path}: a reader is using it and its log; try again later")

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Copy the store, as last committed, into a new file.

        Safe while the store is open, here and elsewhere: a reader can back up while another process
        writes. The copy appears under its name when it is complete, with the permissions of the
        original, and opens as a store that equals it.

        An existing file is never replaced. Returns the path of the copy.
        """
        with self._outside_transaction():
            target = Path(os.fsdecode(path)).resolve()
        self._file.backup(target)  # other threads may go on
        return target

    def refresh(self) -> bool:
        """Read what others have written since, if opened for reading; return whether there was anything."""
        with self._lock:
            self._check_open()
            self._file.reconnect()
            if not self.read_only or self._file.version == self._version:
                return False
            self._undo(())
            return True

    def close(self) -> None:
        """Close the file and release the lock; any later use of the store is an error."""
        with self._lock:
            if not (self._closed or self._file.inherited):
                self._refuse_in_transaction()
                self._closed = True
                self._free_memory()
                self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def history(self) -> tuple[AnchorEvent, ...]:
        """All anchors so far, the latest last."""
        return tuple(starmap(AnchorEvent, self._noted("history")))

    @property
    def audit(self) -> bool:
        """Whether deletions are recorded."""
        return bool(self._noted("audit"))

    @property
    def forgotten(self) -> tuple[tuple[Any, str], ...]:
        """Which ids were deleted, and when; empty if the store does not record deletions."""
        with self._lock:
            self._check_open()
            return tuple(self._file.forgotten())

    @property
    def notes(self) -> Values:
        """A copy of the notes in the store."""
        return copy.deepcopy(self._noted("notes"))

    def note(self, name: str, value: Any) -> None:
        """Store a value of JSON types under a name; None removes it."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a note must be a string; found {name!r}")
        with self.transaction():
            notes = {**self._metadata["notes"], name: json_types(value, f"the note {name!r}")}
            if value is None:
                del notes[name]
            self._put("notes", notes)
            self._file.log_has_traces = True

    def _noted(self, name: str) -> Any:
        self._check_open()
        return self._metadata[name]

    def _put(self, name: str, value: Any) -> None:
        """Change metadata, in the file and in memory."""
        self._file.put(name, value)
        self._metadata[name] = value

    def __repr__(self) -> str:
        if self._closed:
            return f"Store: {self.path}, closed"
        return f"Store: {self.path}\n  {super().__repr__()}"

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"a store is a file; open it where it is needed: dm.open_store({str(self.path)!r})")

    # the operations of a dynamic coreset, each with its commit

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        with self.transaction():
            numbers = super().insert(X, y, sample_weight, ids)
            if self._metadata["anchor"] is None:
                self._note_anchor("the first" if self._settings.given is None else "given", None)
            blocks, rows = self._file.blocks, self._state.validator
            if not blocks.totals["next_block"]:
                blocks.layout = RowLayout(rows.n_columns, rows.dtype, rows.labelled)
            step = _BLOCKS * blocks.layout.capacity
            for start in range(0, len(numbers), step):
                self._file.add(self._block(numbers[start : start + step]), self._state.ids.names)
            return numbers

    def delete(self, ids: Any) -> None:
        with self.transaction():
            state = self._sound()
            numbers = state.slots.ids[self._find(ids)]
            if len(numbers):
                if self._metadata["audit"]:
                    names = state.ids.names
                    self._file.note_forgotten(names.get(one, one) for one in numbers.tolist())
                super().delete(numbers)
                self._file.remove(numbers)

    def update(self, ids: Any, X: Any = None, y: Any = None, sample_weight: Any = None) -> None:
        with self.transaction():
            numbers = self._state.slots.ids[self._find(ids)]
            super().update(numbers, X, y, sample_weight)
            if len(numbers):
                self._file.replace(self._block(numbers))

    def set_outliers(self, n_outliers: float) -> None:
        with self.transaction():
            super().set_outliers(n_outliers)

    def merge(self, other: DynamicCoreset) -> Store:
        with self._both_locked(other), self.transaction():
            super().merge(other)
            self._put("given", anchor_to_json(self._settings.given))
            return self

    def reanchor(self, theta: Any = None) -> None:
        with self.transaction():
            old = self.anchor
            super().reanchor(theta)
            self._note_anchor("found again" if theta is None else "given", old)

    @property
    def _state(self) -> State:
        """The state in memory, after a check that the store is open; waits while it is read again."""
        with self._lock:
            self._check_open()
            assert self._memory is not None
            return self._memory

    @_state.setter
    def _state(self, state: State) -> None:
        self._memory = state

    def _check_open(self) -> None:
        """Raise if the store is closed, belongs to another process, or lost its file."""
        if self._closed:
            raise ValueError(f"the store {self.path} is closed; open it again")
        if self._file.inherited:
            raise RuntimeError(
                f"the store {self.path} was opened before this process was forked; start the process by "
                "spawn or forkserver"
            )
        if self._lost_file:
            raise RuntimeError(
                f"the store {self.path} could not be read again after an error; close it and open it again: "
                "committed changes are in the file"
            )

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise PermissionError(f"{self.path} was opened with read_only=True; open it without that")
        if self._undone:
            raise RuntimeError(f"{self.path}: this transaction was undone when an operation in it failed")

    def _refuse_in_transaction(self) -> None:
        if self._depth:
            raise ValueError(
                f"{self.path}: check, compact, backup and close cannot be part of a transaction; end the "
                "block first"
            )

    @contextmanager
    def _outside_transaction(self) -> Iterator[None]:
        with self._lock:
            self._check_open()
            self._refuse_in_transaction()
            yield

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, whatever others write in the meantime."""
        try:
            self._file.begin()
            with store_errors(self.path):
                self._version = self._file.version
                yield
        finally:
            self._file.rollback()

    def _restore(self) -> None:
        """Load what the file holds into memory; inside a snapshot."""
        self._free_memory()
        metadata, n, blocks = self._file.read()
        restore(self, metadata, n, blocks, **self._file.beside())
        self._metadata, tree = metadata, self._state.tree
        if tree is not None:
            tree.touched = set()

    def _free_memory(self) -> None:
        memory, self._memory = self._memory, None
        if memory is not None:
            del memory.slots.index  # a reference cycle would keep all in memory

    def _undo(self, before: tuple[int, ...]) -> None:
        """Go back to what the file holds; memory that is as it was before is kept."""
        try:
            self._file.rollback()
            if self._memory_version() != before:
                self._file.log_has_traces = not self.read_only  # of what was not committed
                self._file.clear_traces()
                with self._snapshot():
                    self._restore()
        except BaseException:
            self._lost_file = True
            raise

    def _check_file(self) -> None:
        """Check that every page is intact, and that the file agrees with memory."""
        if self.read_only:
            self._restore()
        metadata, n, blocks = self._file.read()
        pack = self._file.blocks.layout.pack
        same = all(pack(block) == pack(self._block(block["ids"])) for block in blocks) and n == self.n_points
        same &= {**metadata["state"], **UNUSED} == {**state_to_json(self), **UNUSED}
        if not same or metadata["notes"] != self._metadata["notes"]:
            raise ValueError("its points, its state or its notes differ from those in memory")
        self._file.check()

    def _memory_version(self) -> tuple[int, ...]:
        """Return a value that differs between any two states in memory."""
        state = self._memory
        return id(state), getattr(state, "version", 0), self._file.n_changes

    def _commit(self, before: tuple[int, ...]) -> None:
        self._check_writable()
        if self._memory_version() == before:
            self._file.rollback()
            return
        self._file.put("state", state_to_json(self))
        state = self._state
        tree: Any = state.tree
        if tree is not None:
            touched = range(len(tree)) if tree.touched is None else tree.touched  # None: it was never written
            places = np.array([place for place in touched if place < len(tree)], dtype=np.int64)
            self._file.set_places(places, state.slots.ids[np.asarray(tree.order)[places]], len(tree))
            tree.touched = set()
        self._file.commit(state.sample)

    def _block(self, numbers: Array) -> Block:
        """Return points, with whether they changed since the anchor, as the file takes them."""
        slots = self._sound().slots
        return slots.block(slots.find(numbers))

    def _note_anchor(self, what: str, old: Anchor | None) -> None:
        """Write the anchor, if there is one, from which all points were scored again."""
        anchor = self.anchor
        if anchor is not None:
            moved = None if old is None else distance(old.theta, anchor.theta)
            event = now(), what, self.n_points, anchor.radius, moved
            self._put("history", [*self._metadata["history"], event])
            self._put("anchor", {**anchor_state(anchor), "ids": []})  # they are in a table
            self._file.begin_epoch(self._state.sample)


_NOT_SETTINGS = ("path", "create", "read_only", "synchronous")


def open_store(
    path: str | os.PathLike[str],
    create: bool = False,
    *,
    read_only: bool = False,
    loss: Loss | None = None,
    size: int | None = None,
    n_outliers: float | None = None,
    sampler: Sampler | str | None = None,
    engine: str | None = None,
    suspects: float | str | None = None,
    calibrate: bool | None = None,
    random_state: Any = None,
    anchor: Any = None,
    bucket_size: int | None = None,
    height: int | None = None,
    audit: bool | None = None,
    synchronous: str = "full",
) -> Store:
    """Open a dynamic coreset stored in a file, or create one.

    One process may write at a time, and any number may read. The writer holds a
    lock that is released when its process ends, however it ends.

    Parameters
    ----------
    path : str or path
        The file, such as ``customers.duramen``. While it is open, SQLite's log
        (``-wal``, ``-shm``) and the lock (``-lock``) are next to it.
    create : bool
        Whether to create the file if it is missing. An existing store is opened.
    read_only : bool
        Whether to open it for reading only, in its current state; ``refresh()`` reads later changes.
    loss : Loss
        The learning problem. Required to create a store, and to open one with a
        custom loss, which a file cannot store.
    size, n_outliers, sampler, engine, suspects, calibrate, random_state, anchor, bucket_size, height
        As for :class:`duramen.DynamicCoreset`, to create a store. For an existing
        one, a setting that contradicts it is an error. A custom sampler must be
        passed each time.
    audit : bool
        Whether to record the id and time of each deletion; nothing else of a deleted point is kept.
    synchronous : "full" or "normal"
        Whether every operation waits for the disk. With "normal" a power cut may
        undo the latest ones, but the file stays intact; the end of the
        process undoes nothing in either case.

    Raises
    ------
    FileNotFoundError
        If there is no such file, and ``create`` is False.
    StoreLockedError
        If another process has it open for writing; the message names it.
    DamagedStoreError
        If the file differs from what was written; the message names the damage.
    ValueError
        If it is not a store, was written by a newer version, or a setting contradicts it.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import duramen as dm
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name) / "customers.duramen"
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> with dm.open_store(path, create=True, loss=dm.KMeansLoss(2), size=100, random_state=0) as store:
    ...     ids = store.insert(X)
    ...     before = store.coreset()
    >>> with dm.open_store(path) as store:
    ...     bool((store.coreset().ids == before.ids).all())
    True
    >>> folder.cleanup()
    """
    given = {name: one for name, one in locals().items() if name not in _NOT_SETTINGS and one is not None}
    if synchronous not in ("full", "normal"):
        raise ValueError(f"synchronous={synchronous!r} is unknown; pass 'full' or 'normal'")
    if create and read_only:
        raise ValueError("create and read_only contradict each other; leave one of them out")
    place = check_place(Path(os.fsdecode(path)))  # independent of links and of the working directory
    if not (create or place.exists()):
        raise FileNotFoundError(
            f"there is no store {place}; dm.open_store(path, create=True, loss=...), or duramen store init, "
            "creates one"
        )
    if not read_only and place.exists() and place.stat().st_nlink > 1:
        raise ValueError(f"{place} has several names (hard links), each with its own log; remove all but one")
    is_new = create and ("loss" in given or not place.exists())
    fresh = _first_metadata(**given) if is_new else None  # raises before there is a file
    file = StoreFile(place, read_only=read_only, synchronous=synchronous)
    try:
        file.open(fresh)
        return Store(file, given)
    except BaseException:
        file.close()
        raise


def _first_metadata(loss: Loss | None = None, audit: bool = False, **settings: Any) -> Values:
    """Return the metadata of a new store."""
    if loss is None:
        raise ValueError("a new store needs a loss; pass loss=, such as loss=dm.LogisticLoss()")
    fresh = DynamicCoreset(loss, **settings)
    return {
        "settings": settings_to_json(fresh),
        "given": anchor_to_json(fresh._settings.given),
        "state": state_to_json(fresh),
        "anchor": None,
        "audit": bool(audit),
        "notes": {},
        "history": [],
    }


def _check_settings(store: Store, given: Values) -> None:
    """Raise ValueError if a setting contradicts what the store was made with."""
    other = _first_metadata(**{"loss": store.loss, **given})
    mine, theirs = ({**one, **one["settings"]} for one in (store._metadata, other))
    for name, value in given.items():
        key = {"random_state": "seed", "anchor": "given"}.get(name, name)
        unknown = not is_whole(value) if key == "seed" else (key, value) == ("engine", "auto")
        if mine[key] != theirs[key] and not unknown:  # a generator does not reveal its seed
            raise ValueError(
                f"{store.path} was made with a different {name} than {value!r}; leave it out, or create "
                "another store"
            )
