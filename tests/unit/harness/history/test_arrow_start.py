"""Arrow starts without pandas, and works with it afterwards."""

import subprocess
import sys

PROGRAM = """
import sys
import pyarrow as pa
from harness.history.arrow import start_arrow
start_arrow()
pa.array(["a", None]), pa.table({"x": [1.5]})
assert "pandas" not in sys.modules
assert list(pa.table({"x": [1]}).to_pandas()["x"]) == [1]
import pandas
values = pa.array(pandas.Series([1.0, float("nan")]), from_pandas=True)
assert values.null_count == 1 and values.type == pa.float64()
start_arrow()
"""


def test_the_first_list_does_not_load_pandas_and_later_conversions_know_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
