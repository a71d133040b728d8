"""A digest of a history: equal histories have equal digests, whatever process computes it.

Arrow does not define the bytes of missing values, and a table may consist of any number of chunks. Therefore each
column is hashed as its present values and, apart from them, which values are present.
"""

from collections.abc import Mapping
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from harness.history.schema import ADDED_IN, COLUMNS_ADDED_IN

DIGEST_BYTES = 16
FIRST_FORMAT = 6
"""The history format of the first digests. A table that a later one added counts if it has rows, so that digests
of runs that do not use it stay the same."""
LAST_WITH_ALL_COLUMNS = 9
"""The last history format whose columns count in every digest. One that a later format added counts if it has a
value."""


def digest_of(tables: Mapping[str, pa.Table]) -> str:
    """Returns the digest of tables by their names, columns, types and rows, as 32 hexadecimal digits.

    Args:
        tables: In canonical order, because the order of rows counts.
    """
    total = blake2b(digest_size=DIGEST_BYTES)
    for name in sorted(tables):
        table = tables[name]
        if ADDED_IN.get(name, 0) > FIRST_FORMAT and not table.num_rows:
            continue
        total.update(f"{name} {table.num_rows}\n".encode())
        for field, column in zip(table.schema, table.columns, strict=True):
            added_in = COLUMNS_ADDED_IN.get((name, field.name), 0)
            if added_in > LAST_WITH_ALL_COLUMNS and column.null_count == table.num_rows:
                continue
            total.update(f"{field.name} {field.type} {column.null_count}\n".encode())
            if column.null_count:
                total.update(_bytes_of(pc.cast(pc.is_valid(column), pa.uint8())))
                column = column.drop_null()
            total.update(_bytes_of(column))
    return total.hexdigest()


def _bytes_of(column: pa.ChunkedArray) -> memoryview:
    """Returns the values of a column without missing ones as bytes."""
    if pa.types.is_boolean(column.type):
        # A bitmap may end in bits that mean nothing.
        column = pc.cast(column, pa.uint8())
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    return memoryview(pa.RecordBatch.from_arrays([whole], ["values"]).serialize())
