"""Tables in files, read in batches, and how their columns become numbers.

>>> from duramen.tables import learn_encoding, open_table
>>> table = open_table("people.parquet")  # doctest: +SKIP
>>> encoding = learn_encoding(table, label="ill", one_hot=["region"])  # doctest: +SKIP
>>> for batch, rows in encoding.read(table):  # doctest: +SKIP
...     print(batch.done, rows.X.shape, rows.y)
"""

from duramen.tables.encoding import Encoding, Rows
from duramen.tables.learning import learn_encoding
from duramen.tables.opening import FORMATS, open_table
from duramen.tables.table import Batch, Table

__all__ = ["FORMATS", "Batch", "Encoding", "Rows", "Table", "learn_encoding", "open_table"]
