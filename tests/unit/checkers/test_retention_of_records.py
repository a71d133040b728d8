"""Where polls begin if the log start moves."""

from dataclasses import replace

from checkers.kernels.history import read_history
from checkers.kernels.retention import with_log_starts
from tests.anomalies.runs import append, read
from tests.property.brute_force import ends_table, operations_table, records_table


def test_before_its_first_move_the_log_starts_at_0() -> None:
    """Op 4 returned offset 2 before the log start moved to 5: it skipped offsets 0 and 1."""
    calls = [append(1, 2, at=1), replace(read(4, 9), records=((2, 1),))]
    history = read_history(operations_table(calls), records_table(calls), ends_table(calls))
    assert with_log_starts(history, [(11, 5)]).poll_position.tolist() == [0]
    assert with_log_starts(history, [(10, 5)]).poll_position.tolist() == [2]
