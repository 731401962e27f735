"""Tables in files, read in batches, and how their columns become numbers."""

from duramen.io.encoding import EncodedRows, Encoding, learn_encoding
from duramen.io.formats import FORMATS, open_table
from duramen.io.tables import Batch, Table

__all__ = ["FORMATS", "Batch", "EncodedRows", "Encoding", "Table", "learn_encoding", "open_table"]
