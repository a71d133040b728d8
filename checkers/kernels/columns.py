"""Values whose fields are columns: row i of every column belongs to the same thing."""

from dataclasses import fields
from typing import Any, Self, cast

import numpy as np


class Columns:
    """Base of dataclasses whose arrays have equal lengths; other fields are about all rows."""

    __slots__ = ()

    def take(self, rows: Any) -> Self:
        """Returns some of the rows.

        Args:
            rows: Positions, or which rows.
        """
        values = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        return type(self)(
            **{
                name: value[rows] if isinstance(value, np.ndarray) else value
                for name, value in values.items()
            }
        )
