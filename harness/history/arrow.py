"""Arrow without pandas.

When Arrow converts its first list, it imports pandas, only to recognize pandas objects in what it is given. The
harness gives it none, and the import takes a third of a second, a tenth of a short run.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Hides pandas from imports."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"no module named {fullname!r}", name=fullname)
        return None


def start_arrow() -> None:
    """Makes Arrow convert its first list, without pandas unless that is loaded already.

    Later conversions open no file, which a simulated world forbids once it runs. What needs pandas by name, such
    as `to_pandas`, still imports it.
    """
    hidden = _NoPandas()
    sys.meta_path.insert(0, hidden)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)
