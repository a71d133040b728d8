"""Drawn faults in terms of a system that lacks some of what they are about."""

from dataclasses import replace
from typing import Any

import pytest

from nemesis.attainable import FLUSH_MARGIN_MS, LEADER, SUBSTITUTES, Attainable, is_about_fsync
from nemesis.fault import Fault
from nemesis.targets import SELECTORS

KAFKA = Attainable()


def fault(name: str, *targets: str, **params: Any) -> Fault:
    return Fault(id="f", fault=name, targets=targets, at_ms=100, for_ms=50, params=params)


def test_every_drawn_fault_stays_as_it_is_if_the_system_has_everything() -> None:
    drawn = (
        fault("kill", "last_in_isr:t-0"),
        fault("isolate", "one", planes=("controller",)),
        fault("io_error", "one", op="fsync", every=1),
        fault("slow_disk", "isr_member:t-0", ms=5),
    )
    assert KAFKA.of(drawn) == drawn


def test_selectors_that_can_mean_no_node_become_the_nearest_ones() -> None:
    nats = Attainable(impossible_targets=("last_in_isr", "isr_follower", "controllers"))
    (kill, cut, all_) = nats.of(
        (
            fault("kill", "last_in_isr:t-0"),
            fault("cut", "leader:t-0", "isr_follower:t-0"),
            fault("kill", "all", "controllers"),
        )
    )
    assert kill.targets == ("leader_or_replica:t-0",)
    assert cut.targets == ("leader_or_replica:t-0", "follower:t-0")
    assert all_.targets == ("all", "controllers"), "nothing else means controllers"
    assert {*SUBSTITUTES, *SUBSTITUTES.values(), LEADER} <= set(SELECTORS)
    (plain,) = Attainable(impossible_targets=("elr_member",)).of((fault("kill", "leader:t-0"),))
    assert plain.targets == ("leader:t-0",)


@pytest.mark.parametrize(
    ("drawn", "left"),
    [
        (("controller",), None),
        (("inter-broker", "controller"), ("inter-broker",)),
        (("inter-broker",), ("inter-broker",)),
    ],
)
def test_without_controllers_there_are_no_packets_of_controllers(drawn: Any, left: Any) -> None:
    plain = Attainable(has_controllers=False)
    (found,) = plain.of((fault("loss", "one", planes=drawn, percent=5),))
    assert found.params.get("planes") == left
    assert found.params["percent"] == 5


def test_an_unclean_election_that_is_refused_becomes_a_clean_one() -> None:
    unclean = Fault(
        id="f", fault="elect_leader", params={"partition": "t-0", "election": "unclean"}
    )
    (found,) = Attainable(has_unclean_elections=False).of((unclean,))
    assert found == replace(unclean, params={"partition": "t-0"})


FSYNC = fault("io_error", "one", op="fsync", every=2)
SLOW = fault("slow_disk", "one", ms=5)


@pytest.mark.parametrize("drawn", [FSYNC, SLOW])
def test_a_fault_of_fsync_is_for_a_replica_and_lasts_until_it_flushes(drawn: Fault) -> None:
    (found,) = Attainable(flush_interval_ms=1000, until_ms=5000).of((drawn,))
    assert found == replace(drawn, targets=("follower",), for_ms=1000 + FLUSH_MARGIN_MS)
    long = replace(drawn, for_ms=4000)
    (found,) = Attainable(flush_interval_ms=1000, until_ms=5000).of((long,))
    assert found.for_ms == 4000
    (found,) = Attainable(flush_interval_ms=1000, election_timeout_ms=700).of((drawn,))
    assert found.for_ms == 1700 + FLUSH_MARGIN_MS


def test_a_fault_of_fsync_is_replaced_or_left_out_if_nothing_is_flushed_in_time() -> None:
    never = Attainable(flush_interval_ms=120_000, until_ms=60_000)
    dead = fault("io_error", "one", op="all", every=1)
    pause = fault("pause", "one")
    assert never.of((FSYNC, SLOW, dead, pause)) == (
        replace(FSYNC, params={"op": "all"}),
        dead,
        pause,
    )
    assert [is_about_fsync(one) for one in (FSYNC, SLOW, dead, pause)] == [True, True, False, False]
