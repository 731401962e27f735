"""The durable form of a dynamic coreset: one SQLite file; an operation is on disk when it returns."""

from duramen.store.errors import DamagedStoreError, StoreLockedError
from duramen.store.recovery import Recovered, recover
from duramen.store.store import AnchorEvent, Store, open_store

__all__ = [
    "AnchorEvent",
    "DamagedStoreError",
    "Recovered",
    "Store",
    "StoreLockedError",
    "open_store",
    "recover",
]
