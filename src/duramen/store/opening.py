"""Stores made and opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from duramen.dynamic import DynamicCoreset
from duramen.dynamic.persist import anchor_to_json, settings_to_json, state_to_json
from duramen.losses.base import Loss
from duramen.samplers import Sampler
from duramen.store.file import StoreFile, refuse_foreign
from duramen.store.lock import WriterLock, refuse_inherited
from duramen.store.store import Store

__all__ = ["open_store", "resolved"]

_FOR_THE_CALL = ("path", "create", "read_only", "synchronous")


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
    """Open a dynamic coreset that is kept in a file, or make one.

    One process may write at a time, and any number read. Whoever writes keeps a
    lock that ends with the process, however that ends.

    Parameters
    ----------
    path : str or path
        Of one file, such as ``customers.duramen``. While it is open, SQLite's log
        is beside it (``-wal``, ``-shm``), and the lock (``-lock``).
    create : bool
        Whether to make it where it is missing. One that is there is opened.
    read_only : bool
        Whether it is only to be read: as it is now, and after ``refresh()`` as it is then.
    loss : Loss
        The learning problem. To make a store; and to open one with a loss of
        your own, which no file can hold.
    size, n_outliers, sampler, engine, suspects, calibrate, random_state, anchor, bucket_size, height
        As for :class:`duramen.DynamicCoreset`, to make a store. For one that is
        there, whatever contradicts it is an error. A sampler of your own must be
        passed each time.
    audit : bool
        Whether to note the id of each point that is deleted, and when; nothing else of it.
    synchronous : "full" or "normal"
        Whether every operation waits for the disk. With "normal" a power cut may
        take the latest ones back, but the file stays sound; the end of the
        process takes nothing in either case.

    Raises
    ------
    FileNotFoundError
        If there is no such file, and ``create`` is not asked for.
    StoreLockedError
        If somebody else has it open for writing; the text names them.
    DamagedStoreError
        If the file is not what was written; the text names the damage.
    ValueError
        If it is no store, was written by a newer version, or a setting contradicts it.

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
    given = {name: value for name, value in locals().items() if name not in _FOR_THE_CALL}
    given = {name: value for name, value in given.items() if value is not None}
    place = resolved(path)
    if synchronous not in ("full", "normal"):
        raise ValueError(f"synchronous={synchronous!r} is not known; take 'full' or 'normal'")
    if create and read_only:
        raise ValueError("create and read_only contradict each other; leave one of them out")
    _check_place(place, create, not read_only)
    if read_only:
        return _opened(StoreFile(place, read_only=True), None, given)
    fresh = _fresh(given) if create and not _has_content(place) else None  # raises before a file is there
    lock = WriterLock(place)
    try:
        file = StoreFile(place, synchronous=synchronous)
        try:
            if file.is_blank:
                _make(file, fresh, given, create)
            return _opened(file, lock, given)
        except BaseException:
            file.close()
            raise
    except BaseException:
        lock.release()
        raise


def _opened(file: StoreFile, lock: WriterLock | None, given: dict[str, Any]) -> Store:
    try:
        file.open()
        store = Store(file, lock, given.get("loss"), given.get("sampler"))
        _check_settings(store, given)
    except BaseException:
        if lock is None:
            file.close()
        raise
    return store


def _check_place(place: Path, create: bool, writing: bool) -> None:
    """Raise if there is no store at this place, and none can be."""
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder; name a file in it, such as {place / 'data.duramen'}")
    refuse_inherited(place)
    if not place.exists():
        if not create:
            raise FileNotFoundError(
                f"there is no store {place}; dm.open_store(path, create=True, loss=...) makes one"
            )
        if not place.absolute().parent.is_dir():
            raise FileNotFoundError(f"{place}: there is no folder {place.absolute().parent}; make it first")
        return
    if writing and place.stat().st_nlink > 1:
        raise ValueError(
            f"{place} has several names (hard links), under each of which SQLite would keep another log; "
            "remove all but one"
        )
    if writing:
        refuse_foreign(place)  # before anything is written to it


def resolved(path: str | os.PathLike[str]) -> Path:
    """Give the one path of a file: whatever links lead to it, and wherever the process goes."""
    return Path(os.path.realpath(os.fsdecode(path)))


def _has_content(place: Path) -> bool:
    return place.exists() and place.stat().st_size > 0


def _fresh(given: dict[str, Any]) -> DynamicCoreset:
    """Make what the store begins with; raises what a DynamicCoreset does."""
    if "loss" not in given:
        raise ValueError("a new store needs a loss; pass loss=, such as loss=dm.LogisticLoss()")
    return DynamicCoreset(**{name: value for name, value in given.items() if name != "audit"})


def _make(file: StoreFile, fresh: DynamicCoreset | None, given: dict[str, Any], create: bool) -> None:
    if not create:
        raise ValueError(
            f"{file.path} is empty: its making was cut short; dm.open_store(path, create=True, loss=...) "
            "makes it"
        )
    fresh = fresh or _fresh(given)
    facts: dict[str, Any] = {
        "settings": settings_to_json(fresh),
        "given": anchor_to_json(fresh._settings.given),
        "state": state_to_json(fresh),
        "anchor": None,
        "audit": bool(given.get("audit", False)),
        "notes": {},
        "history": [],
    }
    file.create(facts)


def _check_settings(store: Store, given: dict[str, Any]) -> None:
    """Raise ValueError if a setting contradicts what the store was made with."""
    wanted = {name: value for name, value in given.items() if name not in ("audit", "anchor", "random_state")}
    made = DynamicCoreset(**{"loss": store.loss, **wanted})
    mine, theirs = settings_to_json(store), settings_to_json(made)
    mine["n_outliers"] = store._file.facts.get("settings")["n_outliers"]
    asked = set(wanted) | ({"seed"} if _is_seed(given.get("random_state")) else set())
    if "seed" in asked:
        theirs["seed"] = DynamicCoreset(store.loss, random_state=given["random_state"]).seed
    mine["audit"], theirs["audit"] = store.audit, given.get("audit", False)
    mine["anchor"], theirs["anchor"] = store._file.facts.get("given"), anchor_to_json(given.get("anchor"))
    asked |= {name for name in ("audit", "anchor") if name in given}
    for name in sorted(asked):
        if mine[name] != theirs[name] and not (name == "engine" and given[name] == "auto"):
            shown = "random_state" if name == "seed" else name
            store.close()
            raise ValueError(
                f"{store._file.path} was made with another {shown} than {given[shown]!r}; leave it out, or "
                "make another store"
            )


def _is_seed(random_state: Any) -> bool:
    return isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool)
