"""What a run declares about itself decides how its logs are read."""

import pytest

from checkers.kernels.log_checkers import LINEARIZABILITY
from harness.contracts.run_context import LOG_CHECKERS, SESSION_CHECKER, RunContext
from tests.anomalies.runs import append, run


@pytest.mark.parametrize(
    ("checkers", "found"), [((), ["unfilled-hole"]), ((SESSION_CHECKER,), [])], ids=["no", "yes"]
)
def test_only_idempotent_producers_may_leave_an_offset_without_a_record(
    checkers: tuple[str, ...], found: list[str]
) -> None:
    """Nothing was appended at offset 0. An attempt that an idempotent producer sent again may have been there."""
    context = RunContext(checkers=(*LOG_CHECKERS, *checkers))
    report = LINEARIZABILITY.check(run([append(0, 1, at=1)]), context)
    assert [finding.id for finding in report.findings] == found
