"""The durable form of a dynamic coreset: one SQLite file; an operation is on disk when it returns."""

from duramen.store.connection import DamagedStoreError, StoreLockedError
from duramen.store.store import AnchorEvent, Store, open_store

__all__ = ["AnchorEvent", "DamagedStoreError", "Store", "StoreLockedError", "open_store"]
