"""The store: a dynamic coreset whose every operation is on disk before it returns."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

import numpy as np

from duramen.arrays import Array, is_whole
from duramen.coreset.save import LossMismatchError, anchor_of, anchor_state
from duramen.dynamic.dynamic_coreset import DynamicCoreset
from duramen.dynamic.persist import (
    UNUSED,
    anchor_to_json,
    restore,
    restore_settings,
    settings_from_json,
    settings_to_json,
    state_to_json,
)
from duramen.dynamic.state import State
from duramen.files import json_types
from duramen.losses.base import Loss, distance
from duramen.samplers.base import Sampler
from duramen.store.blocks import Block, RowLayout
from duramen.store.connection import StoreLockedError, damage_errors
from duramen.store.file import StoreFile, resolve
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

    def __init__(self, file: StoreFile, given: dict[str, Any]) -> None:
        self._file, self._pid = file, os.getpid()
        self._closed = self._lost_file = False
        self._depth, self._undone = 0, False  # of transactions; whether the outermost was already undone
        self._n_changes = 0  # besides those of the state
        self._origin = "the first"  # of an anchor found on insertion
        self._memory: State | None = None
        self._metadata: dict[str, Any] = {}
        with damage_errors(file.path):
            settings = file.metadata()["settings"]
        try:
            known = settings_from_json(settings, given.get("loss"), given.get("sampler"))
        except (LossMismatchError, TypeError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{file.path} {error}") from None
        super().__init__(**known)
        with self._snapshot():
            self._restore()
        _check_settings(self, self._metadata, given)
        self._finalizer = weakref.finalize(self, _close_file, file, self._pid)

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

        Cost: several passes over all points.

        Returns
        -------
        str
            A summary of what was checked.

        Raises
        ------
        DamagedStoreError
            Naming the damage.
        """
        with self._lock:
            self._check_open()
            self._refuse_in_transaction("check()")
            with self._snapshot():
                self._check_file()
                self.check_invariants()
            n_blocks = self._file.blocks.totals["n_blocks"]
            last = "every invariant holds" if __debug__ else "no invariant was checked, because of python -O"
            return f"{self.n_points:,} points in {n_blocks:,} blocks: every page, every checksum and {last}"

    def compact(self) -> None:
        """Make the file as small as possible, and erase all traces of deleted rows from all its files.

        Raises
        ------
        StoreLockedError
            If a reader is active, so that the log cannot be emptied; try again.
        """
        with self._lock:
            self._check_writable()
            self._refuse_in_transaction("compact()")
            with self.transaction():
                self._n_changes += 1
                self._file.pack()
            self._file.shrink()
            if not self._file.empty_log():
                raise StoreLockedError(
                    f"{self.path}: a reader is using it, so its log cannot be emptied; try again"
                )

    def backup(self, path: str | os.PathLike[str]) -> Path:
        """Copy the store, as last committed, into a new file.

        Safe while the store is open, here and elsewhere: a reader can back up while another process
        writes. The copy appears under its name when it is complete, with the permissions of the
        original, and opens as a store that equals it.

        Parameters
        ----------
        path : str or path
            Of the copy; the file must not exist yet.

        Returns
        -------
        Path
            Where the copy is.

        Raises
        ------
        FileExistsError
            If the file already exists.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> import duramen as dm
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = pathlib.Path(folder.name) / "customers.duramen"
        >>> with dm.open_store(path, create=True, loss=dm.KMeansLoss(1), size=100) as store:
        ...     ids = store.insert([[0.0], [1.0], [5.0]])
        ...     copy = store.backup(path.with_name("monday.duramen"))
        >>> with dm.open_store(copy, read_only=True) as store:
        ...     store.ids
        array([0, 1, 2])
        >>> folder.cleanup()
        """
        with self._lock:
            self._check_open()
            self._refuse_in_transaction("backup()")
        target = resolve(path)
        self._file.backup(target)  # other threads may go on
        return target

    def refresh(self) -> bool:
        """Read what others have written since, if opened for reading; return whether there was anything."""
        with self._lock:
            self._check_open()
            self._file.reconnect()
            if not self.read_only or self._file.version == self._version:
                return False
            self._undo(None)
            return True

    def close(self) -> None:
        """Close the file and release the lock; any later use of the store is an error."""
        with self._lock:
            if not self._closed and self._pid == os.getpid():
                self._refuse_in_transaction("close()")
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
        self._check_open()
        return tuple(AnchorEvent(*event) for event in self._metadata["history"])

    @property
    def audit(self) -> bool:
        """Whether deletions are recorded."""
        self._check_open()
        return bool(self._metadata["audit"])

    @property
    def forgotten(self) -> tuple[tuple[Any, str], ...]:
        """Which ids were deleted, and when; empty if the store does not record deletions."""
        with self._lock:
            self._check_open()
            return tuple(self._file.forgotten())

    @property
    def notes(self) -> dict[str, Any]:
        """A copy of the notes in the store."""
        self._check_open()
        return copy.deepcopy(self._metadata["notes"])

    def note(self, name: str, value: Any) -> None:
        """Store a value of JSON types under a name; None removes it."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a note must be a string; found {name!r}")
        with self.transaction():
            notes = {**self._metadata["notes"], name: json_types(value, f"the note {name!r}")}
            self._put("notes", {key: one for key, one in notes.items() if one is not None})
            self._file.log_has_traces = True

    def _put(self, name: str, value: Any) -> None:
        """Change metadata, in memory and in the file."""
        self._metadata = {**self._metadata, name: value}
        self._n_changes += 1
        self._file.put(name, value)

    def __repr__(self) -> str:
        if self._closed:
            return f"Store: {self.path}, closed"
        return f"Store: {self.path}\n  {super().__repr__()}"

    def _parts(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise TypeError(f"a store is a file; open it where it is needed: dm.open_store({str(self.path)!r})")

    # the operations of a dynamic coreset, each with its commit

    def insert(self, X: Any, y: Any = None, sample_weight: Any = None, ids: Any = None) -> Array:
        with self.transaction():
            numbers = super().insert(X, y, sample_weight, ids)
            self._note_anchor(self._origin)
            self._write_points(numbers)
            return numbers

    def delete(self, ids: Any) -> None:
        with self.transaction():
            points = self._sound()
            numbers = points.slots.ids[self._find(ids)]
            if len(numbers):
                names = points.ids.names or {}
                forgotten = [names.get(one, one) for one in numbers.tolist()]
                super().delete(numbers)
                self._file.remove(numbers)
                if self.audit:
                    self._file.note_forgotten(forgotten)

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
            self._origin = "taken over in a merge"
            try:
                super().merge(other)
            finally:
                self._origin = "the first"
            self._put("given", anchor_to_json(self._settings.given))
            return self

    def reanchor(self, theta: Any = None) -> None:
        with self.transaction():
            super().reanchor(theta)
            self._note_anchor("found again" if theta is None else "given", always=True)

    # refusals

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
        if self._pid != os.getpid():
            raise RuntimeError(
                f"the store {self.path} was opened before this process was forked; open it in one that "
                "was started by spawn or forkserver"
            )
        if self._lost_file:
            raise RuntimeError(
                f"the store {self.path} could not be read again after an error; committed changes are "
                "in the file: close it and open it again"
            )

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise PermissionError(
                f"the store {self.path} was opened with read_only=True; open it without that to change it"
            )
        if self._undone:
            raise RuntimeError(f"{self.path}: this transaction was undone when an operation in it failed")

    def _refuse_in_transaction(self, call: str) -> None:
        if self._depth:
            raise ValueError(f"{call} cannot be part of a transaction; end the block first")

    # from the file to memory

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Read one state of the file, whatever others write in the meantime."""
        try:
            self._file.begin()
            with damage_errors(self.path):
                self._version = self._file.version
                yield
        finally:
            self._file.rollback()

    def _restore(self) -> None:
        """Load what the file holds into memory; inside a snapshot."""
        self._free_memory()
        metadata, n, blocks = self._file.read()
        sample, saved = self._file.sample(), metadata["anchor"]
        restore_settings(self, int(metadata["settings"]["seed"]), metadata["given"])
        restore(
            self,
            metadata["state"],
            n,
            blocks,
            anchor=None if saved is None else anchor_of({**saved, "ids": sorted(sample.tolist())}),
            names=self._file.names(),
            sample=sample,
            order=self._file.places(),
        )
        self._metadata, self._written_anchor = metadata, self.anchor
        if self._tree is not None:
            self._tree.touched = set()

    def _free_memory(self) -> None:
        memory, self._memory, self._core = self._memory, None, None
        if memory is not None:
            del memory.slots.index  # a reference cycle would keep all in memory

    def _undo(self, before: tuple[int, ...] | None) -> None:
        """Go back to what the file holds; unchanged memory is kept."""
        try:
            self._file.rollback()
            if before is None or self._memory_version() != before:
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
        if not all(pack(block) == pack(self._block(block["ids"])) for block in blocks):
            raise ValueError("a block holds points that differ from those in memory")
        if n != self.n_points:
            raise ValueError(f"it has {n} points, but memory has {self.n_points}")
        same = {**metadata["state"], **UNUSED} == {**state_to_json(self), **UNUSED}
        if not same or metadata["notes"] != self._metadata["notes"]:
            raise ValueError("its state or its notes differ from those in memory")
        self._file.check()

    # from memory to the file

    @property
    def _tree(self) -> Any:
        return None if self._memory is None else self._memory.tree

    def _memory_version(self) -> tuple[int, ...]:
        """Return a value that differs between any two states in memory."""
        state = self._memory
        return id(state), 0 if state is None else state.version, self._n_changes

    def _commit(self, before: tuple[int, ...]) -> None:
        self._check_writable()
        if self._memory_version() == before:
            self._file.rollback()
            return
        self._file.put("state", state_to_json(self))
        self._write_places()
        self._file.commit(self._state.sample)

    def _write_points(self, numbers: Array) -> None:
        """Write new points."""
        state, blocks, known = self._state, self._file.blocks, self._state.validator
        if not blocks.totals["next_block"]:
            blocks.layout = RowLayout(known.n_columns, known.dtype, known.labelled)
        step = _BLOCKS * blocks.layout.capacity
        for start in range(0, len(numbers), step):
            self._file.add(self._block(numbers[start : start + step]), state.ids.names)

    def _write_places(self) -> None:
        """Write the places of a tree whose points have changed."""
        tree = self._tree
        if tree is not None:
            n, touched = len(tree), tree.touched  # None: it was never written
            places = [place for place in (range(n) if touched is None else touched) if place < n]
            slots = np.array([tree.order[place] for place in places], dtype=np.int64)
            self._file.set_places(np.array(places, dtype=np.int64), self._state.slots.ids[slots], n)
            tree.touched = set()

    def _block(self, numbers: Array) -> Block:
        """Return points, with whether they changed since the anchor, as the file takes them."""
        state = self._sound()
        slots = state.slots.find(numbers)
        points = state.slots.points(slots)
        changed, labels = state.slots.changed[slots], {} if points.y is None else {"labels": points.y}
        return {"ids": points.ids, "epochs": changed, "weights": points.weights, **labels, "rows": points.X}

    def _note_anchor(self, what: str, *, always: bool = False) -> None:
        """Write an anchor that is new, or at which all points were scored again."""
        anchor, old = self.anchor, self._written_anchor
        if anchor is None or (anchor is old and not always):
            return
        moved = None
        if old is not None and old.theta.shape == anchor.theta.shape:
            moved = distance(old.theta, anchor.theta)
        event = [now(), what, self.n_points, anchor.radius, moved]
        self._put("history", [*self._metadata["history"], event])
        self._put("anchor", anchor_state(replace(anchor, ids=np.empty(0, dtype=np.int64))))
        self._file.begin_epoch(self._state.sample)
        self._written_anchor = anchor


def _close_file(file: StoreFile, pid: int) -> None:
    """Close the file, also if the store was never closed; not after a fork."""
    if pid == os.getpid():
        file.close()


# opening

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
    given = {
        name: value for name, value in locals().items() if name not in _NOT_SETTINGS and value is not None
    }
    place = resolve(path)
    if synchronous not in ("full", "normal"):
        raise ValueError(f"synchronous={synchronous!r} is unknown; pass 'full' or 'normal'")
    if create and read_only:
        raise ValueError("create and read_only contradict each other; leave one of them out")
    _check_place(place, create, not read_only)
    needed = create and ("loss" in given or not place.exists())
    fresh = _first_metadata(given) if needed else None  # raises before there is a file
    file = StoreFile(place, read_only=read_only, synchronous=synchronous)
    try:
        file.open(fresh)
        return Store(file, given)
    except BaseException:
        file.close()
        raise


def _check_place(place: Path, create: bool, writing: bool) -> None:
    """Raise if there is no store at this place and none can be created."""
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder; name a file in it, such as {place / 'data.duramen'}")
    if place.exists():
        if writing and place.stat().st_nlink > 1:
            raise ValueError(
                f"{place} has several names (hard links), and SQLite would keep a log under each; "
                "remove all but one"
            )
    elif not create:
        raise FileNotFoundError(
            f"there is no store {place}; dm.open_store(path, create=True, loss=...), or duramen store init, "
            "creates one"
        )
    elif not place.parent.is_dir():
        raise FileNotFoundError(f"{place}: there is no folder {place.parent}; create it first")


def _first_metadata(given: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a new store with these settings."""
    if "loss" not in given:
        raise ValueError("a new store needs a loss; pass loss=, such as loss=dm.LogisticLoss()")
    fresh = DynamicCoreset(**{name: value for name, value in given.items() if name != "audit"})
    return {
        "settings": settings_to_json(fresh),
        "given": anchor_to_json(fresh._settings.given),
        "state": state_to_json(fresh),
        "anchor": None,
        "audit": bool(given.get("audit")),
        "notes": {},
        "history": [],
    }


def _check_settings(store: Store, metadata: dict[str, Any], given: dict[str, Any]) -> None:
    """Raise ValueError if a setting contradicts what the store was made with."""
    other = _first_metadata({"loss": store.loss, **given})
    mine, theirs = ({**one, **one["settings"]} for one in (metadata, other))
    given = {name: value for name, value in given.items() if (name, value) != ("engine", "auto")}
    if not is_whole(given.get("random_state")):
        given.pop("random_state", None)  # a generator does not reveal its seed
    for name in sorted(given):
        key = {"random_state": "seed", "anchor": "given"}.get(name, name)
        if mine[key] != theirs[key]:
            raise ValueError(
                f"{store.path} was made with a different {name} than {given[name]!r}; leave it out, or "
                "create another store"
            )
