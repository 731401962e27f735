"""Tables in files, read in batches, and how their columns become numbers.

>>> from duramen.io import learn_encoding, open_table
>>> table = open_table("people.parquet")  # doctest: +SKIP
>>> encoding = learn_encoding(table, label="ill", one_hot=["region"])  # doctest: +SKIP
>>> for batch, rows in encoding.read(table):  # doctest: +SKIP
...     print(batch.done, rows.X.shape, rows.y)
"""

from duramen.io.encoding import EncodedRows, Encoding, learn_encoding
from duramen.io.formats import FORMATS, open_table
from duramen.io.tables import Batch, Table

__all__ = ["FORMATS", "Batch", "EncodedRows", "Encoding", "Table", "learn_encoding", "open_table"]
