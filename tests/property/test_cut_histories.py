"""Parts of a history are what the same tables with fewer rows give."""

import random
from dataclasses import replace

import numpy as np

from checkers.kernels.hidden import invoked_before, unresolved
from checkers.kernels.history import INF_NS, INFO, PartitionHistory, read_history
from tests.property.brute_force import Call, ends_table, operations_table, records_table
from tests.property.test_findings_by_definition import history_of


def arrays(calls: list[Call]) -> PartitionHistory:
    return read_history(operations_table(calls), records_table(calls), ends_table(calls))


def assert_same(found: PartitionHistory, expected: PartitionHistory, *, but: str = "") -> None:
    for name in PartitionHistory.__dataclass_fields__:
        if name.partition("_")[0] not in ("odd", "unordered") and name not in ("left_out", but):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name


def test_what_was_invoked_before_a_moment_is_a_history_of_its_own() -> None:
    for number in range(300):
        calls, _ = history_of(number)
        at_ns = random.Random(f"cut/{number}").randint(-1, 80)
        before = [call for call in calls if call.inv < at_ns]
        cut = invoked_before(arrays(calls), at_ns)
        # Whether a record is trusted was decided with all appends.
        assert_same(cut, arrays(before), but="record_trusted")
        assert len(cut.record_trusted) == len(cut.record_value)
        assert len(cut.odd_op) == len(cut.unordered_op) == 0


def test_appends_can_be_made_unknown() -> None:
    for number in range(100):
        calls, _ = history_of(number)
        history = arrays(calls)
        rng = random.Random(f"unresolved/{number}")
        chosen = {call.op for call in calls if call.kind == "append" and rng.random() < 0.4}
        rows = np.isin(history.append_op, sorted(chosen))
        found = unresolved(history, rows)
        expected = [
            replace(call, outcome="info", res=None) if call.op in chosen else call for call in calls
        ]
        assert_same(found, arrays(expected), but="append_offset")
        assert (found.append_status[rows] == INFO).all()
        assert (found.append_res[rows] == INF_NS).all()
        assert found.append_offset.tolist() == history.append_offset.tolist()
