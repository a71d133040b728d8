"""Every pair of broker states: the table decides what is accepted, and the lifecycle obeys it."""

import itertools

import pytest

from system_under_test.broker.lifecycle import (
    LEGAL_TRANSITIONS,
    BrokerState,
    check_broker_transition,
)
from system_under_test.invariants import InvariantViolation

NOT_RUNNING = BrokerState.NOT_RUNNING
STARTING = BrokerState.STARTING
RECOVERY = BrokerState.RECOVERY
RUNNING = BrokerState.RUNNING
PENDING = BrokerState.PENDING_CONTROLLED_SHUTDOWN
SHUTTING_DOWN = BrokerState.SHUTTING_DOWN

LEGAL = {
    (NOT_RUNNING, STARTING),
    (STARTING, RECOVERY),
    (RECOVERY, RUNNING),
    (RUNNING, PENDING),
    (PENDING, SHUTTING_DOWN),
    # A broker that is not in service stops without asking.
    (NOT_RUNNING, SHUTTING_DOWN),
    (STARTING, SHUTTING_DOWN),
    (RECOVERY, SHUTTING_DOWN),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(BrokerState, BrokerState)))
def test_exactly_the_listed_transitions_are_accepted(old: BrokerState, new: BrokerState) -> None:
    if (old, new) in LEGAL:
        check_broker_transition(1, 41, old, new)
    else:
        with pytest.raises(InvariantViolation, match="INV-12") as caught:
            check_broker_transition(1, 41, old, new)
        assert caught.value.context == {
            "old": old,
            "new": new,
            "broker_id": 1,
            "broker_epoch": 41,
        }


def test_the_table_names_every_state() -> None:
    assert set(LEGAL_TRANSITIONS) == set(BrokerState)
