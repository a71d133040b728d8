"""What happens to consumer groups without the rules by which a coordinator's records outlive it."""

import pytest

from harness.defects.groups import CUT_OFF, KILLED, broken, verdicts
from tests.mutations.coverage import shows
from tests.mutations.expectation import expect_defect


@pytest.mark.long
@pytest.mark.parametrize("fault", [CUT_OFF, KILLED], ids=["cut-off", "killed"])
def test_with_all_rules_a_group_survives_every_coordinator(fault: str) -> None:
    for verdict in verdicts(fault):
        assert verdict.validity == "valid", verdict.reasons
        assert verdict.coverage["group_commits"] > 100


@pytest.mark.long
@shows("GRP-13", "B-76")
def test_a_coordinator_that_moves_what_it_loads_skips_records() -> None:
    expect_defect("B-76")


@shows("GRP-1", "B-56")
def test_a_coordinator_that_acknowledges_before_replication_loses_commits() -> None:
    expect_defect("B-56")


@pytest.mark.long
@shows("GRP-3", "B-57")
def test_a_generation_that_only_the_coordinator_has_is_counted_again_by_its_successor() -> None:
    expect_defect("B-57")
    assert broken(CUT_OFF, "GRP-3") == {"double-ownership"}


@pytest.mark.long
@shows("GRP-4", "B-55")
def test_a_coordinator_that_loads_nothing_reports_that_nothing_is_committed() -> None:
    expect_defect("B-55")
    sentences = [anomaly.sentence for v in verdicts(KILLED, "GRP-4") for anomaly in v.anomalies]
    assert any("nothing is committed" in sentence for sentence in sentences)
