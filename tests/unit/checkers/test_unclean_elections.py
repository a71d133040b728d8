"""Which flagged election of a partition was unavoidable, and which fault justifies it."""

from typing import Any

import pytest

from checkers.kernels.destroyed import Alone, Destroyed, Led
from checkers.kernels.elections import Elections
from checkers.kernels.fates import Election
from checkers.kernels.history import INF_NS
from checkers.kernels.metadata_gaps import NOTHING_SHOWN, MetadataGaps
from checkers.kernels.unclean_elections import NO_OBJECTION, Requested
from tests.anomalies.runs import broker, fault, state, table

Row = dict[str, Any]


def last_election(states: list[Row], brokers: list[Row], faults: list[Row]) -> Election:
    return Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", brokers),
        table("faults", faults),
        elr_on=True,
    ).elections[-1]


SHRUNK = [
    state(20, 1, [1, 2], epoch=0),
    state(30, 1, [1], epoch=0),
    state(40, -1, [], epoch=1),
    state(60, 3, [3], epoch=2, flagged=True),
]
"""Brokers 2 and 1 leave the ISR; min ISR is 2."""


def test_an_isr_that_was_never_large_enough_promised_nothing() -> None:
    """Then there is no last moment with an ISR of min ISR members, and no broker had to leave it."""
    states = [state(20, 1, [1], epoch=0), *SHRUNK[2:]]
    registrations = [broker(10, 1, "registered", clean=True)]
    assert last_election(states, registrations, []).is_lawful
    assert not last_election(SHRUNK, registrations, []).is_lawful


@pytest.mark.parametrize("is_explained", [False, True])
def test_a_broker_that_left_before_the_last_full_isr_does_not_count(is_explained: bool) -> None:
    """Broker 3 left at 20, when the ISR still had min ISR members. Brokers 1 and 2 leave at the election."""
    states = [
        state(10, 1, [1, 2, 3], epoch=0),
        state(20, 1, [1, 2], epoch=0),
        state(60, 3, [3], epoch=1, flagged=True),
    ]
    brokers = [
        broker(20, 3, "unregistered"),
        broker(60, 1, "unregistered"),
        broker(60, 2, "registered", clean=False),
    ]
    faults = [fault(55, "power", ["b2"])] if is_explained else []
    assert last_election(states, brokers, faults).is_lawful is is_explained


@pytest.mark.parametrize(
    ("first", "last", "is_lawful"), [(20, 40, True), (19, 40, False), (20, 41, False)]
)
def test_a_broker_left_if_it_was_unregistered_between_the_full_isr_and_its_leaving(
    first: int, last: int, is_lawful: bool
) -> None:
    """Both moments count: the changes of one batch are committed at the same one."""
    brokers = [broker(first, 2, "unregistered"), broker(last, 1, "unregistered")]
    assert last_election(SHRUNK, brokers, []).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("name", "at", "healed", "is_lawful"),
    [
        ("power", 29, None, True),
        ("power", 30, None, True),
        ("power", 31, None, False),
        ("power", 11, None, True),
        ("power", 10, None, True),
        ("power", 9, None, False),
        ("disk_full", 30, None, True),
        ("disk_full", 31, None, False),
        ("disk_full", 5, 11, True),
        ("disk_full", 5, 10, False),
    ],
)
def test_a_fault_explains_an_unclean_end_from_the_last_clean_start_to_the_registration(
    name: str, at: int, healed: int | None, is_lawful: bool
) -> None:
    """Broker 2 starts cleanly at 10 and registers uncleanly at 30. The fault at 9 was before it had started."""
    brokers = [
        broker(10, 2, "registered", clean=True),
        broker(30, 2, "registered", clean=False),
        broker(40, 1, "unregistered"),
    ]
    faults = [fault(at, name, ["b2"], healed=healed)]
    assert last_election(SHRUNK, brokers, faults).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("completed_ns", "is_lawful"), [(9, False), (10, True), (15, True), (None, True)]
)
def test_a_fault_that_is_injected_during_a_clean_start_explains_the_unclean_end_after_it(
    completed_ns: int | None, is_lawful: bool
) -> None:
    """Broker 2 starts cleanly at 10. The power cut begins at 9 and keeps it down from its completion on."""
    brokers = [
        broker(10, 2, "registered", clean=True),
        broker(30, 2, "registered", clean=False),
        broker(40, 1, "unregistered"),
    ]
    power = fault(9, "power", ["b2"], healed=25) | {"completed_ns": completed_ns}
    assert last_election(SHRUNK, brokers, [power]).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("name", "at", "took_effect", "excuses", "may_excuse"),
    [
        ("power", 25, True, True, True),
        ("power", 25, False, False, True),
        ("power", 31, False, False, False),
        ("disk_full", 25, False, False, True),
        ("pause", 25, False, False, False),
    ],
)
def test_an_election_is_undecided_if_a_fault_justifies_it_whose_effect_is_not_known(
    name: str, at: int, took_effect: bool, excuses: bool, may_excuse: bool
) -> None:
    """The fault may have ended broker 2 without damage to its disk."""
    brokers = [broker(30, 2, "registered", clean=False), broker(40, 1, "unregistered")]
    found = last_election(SHRUNK, brokers, [fault(at, name, ["b2"], took_effect=took_effect)])
    assert (found.excuses, found.may_excuse) == (excuses, may_excuse)
    assert ("the evidence does not show" in found.reason) is found.is_undecided


@pytest.mark.parametrize(("failed", "may_excuse"), [(True, True), (False, False)])
def test_a_fault_that_failed_halfway_may_have_ended_any_broker(
    failed: bool, may_excuse: bool
) -> None:
    """It was undone, and no node is recorded."""
    brokers = [broker(30, 2, "registered", clean=False), broker(40, 1, "unregistered")]
    power = fault(25, "power", [], took_effect=False) | {"failed": failed}
    found = last_election(SHRUNK, brokers, [power])
    assert (found.excuses, found.may_excuse) == (False, may_excuse)


@pytest.mark.parametrize(("cut_short", "is_lawful"), [(["b2"], True), (["b1"], False), ([], False)])
def test_a_stop_explains_an_unclean_end_if_it_did_not_finish(
    cut_short: list[str], is_lawful: bool
) -> None:
    brokers = [broker(30, 2, "registered", clean=False), broker(40, 1, "unregistered")]
    stop = fault(25, "stop", ["b2"], cut_short=cut_short, took_effect=not cut_short)
    found = last_election(SHRUNK, brokers, [stop])
    assert (found.is_lawful, found.is_undecided) == (is_lawful, False)


@pytest.mark.parametrize(
    ("elr_on", "unclean_election_enabled", "is_recorded", "is_lawful"),
    [
        (True, False, True, False),
        (False, True, True, True),
        (False, False, True, False),
        (False, False, False, False),
        (True, True, True, True),
        (True, False, False, True),
    ],
)
def test_a_flagged_election_may_be_avoidable_only_if_unclean_elections_are_off(
    elr_on: bool, unclean_election_enabled: bool, is_recorded: bool, is_lawful: bool
) -> None:
    """No broker left by an unclean registration. Without any registrations it is not known how they left."""
    found = Elections(
        table("partition_states", SHRUNK),
        table("replica_states", []),
        table("broker_states", [broker(10, 1, "registered", clean=True)] if is_recorded else []),
        table("faults", []),
        elr_on=elr_on,
        unclean_election_enabled=unclean_election_enabled,
    )
    assert found.elections[-1].is_lawful is is_lawful


def flagged_without_elr(
    faults: list[Row],
    brokers: list[Row] | None = None,
    *,
    allowed: bool,
    states: list[Row] = SHRUNK,
) -> tuple[bool, bool]:
    """Returns whether the last election of some states was lawful, and whether that is undecided."""
    found = Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", brokers or []),
        table("faults", faults),
        elr_on=False,
        unclean_election_enabled=allowed,
    ).elections[-1]
    return found.is_lawful, found.is_undecided


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([], (False, False)),
        ([fault(25, "power", ["b1", "b2"])], (False, False)),
        ([fault(55, "elect_leader", [], elects_uncleanly=["t-0"])], (True, False)),
        ([fault(55, "alter_config", [], allows_unclean=["t-0"])], (True, False)),
        ([fault(61, "alter_config", [], allows_unclean=["t-0"])], (False, False)),
        ([fault(55, "alter_config", [], allows_unclean=["t-1"])], (False, False)),
        ([fault(55, "alter_feature", [], reconfigures=["t-0"])], (True, True)),
        ([fault(61, "alter_feature", [], reconfigures=["t-0"])], (False, False)),
        ([fault(55, "alter_feature", [], reconfigures=["t-1"])], (False, False)),
    ],
)
def test_without_eligible_replicas_only_an_administrator_justifies_a_flagged_election(
    faults: list[Row], expected: tuple[bool, bool]
) -> None:
    assert flagged_without_elr(faults, allowed=False) == expected
    assert flagged_without_elr(faults, allowed=True) == (True, False)


def changes(broker_id: int, *names: str, at: int = 0) -> list[Row]:
    return [
        {**broker(at + index, broker_id, name), "metadata_offset": at + index}
        for index, name in enumerate(names)
    ]


IN_ISR = [state(20, 1, [1, 2], epoch=0), state(60, 3, [3], epoch=1, flagged=True)]
BROKEN = [fault(25, "io_error", ["b2"])]


@pytest.mark.parametrize(
    ("brokers", "faults", "expected"),
    [
        (changes(2, "registered", "unfenced"), [], (False, False)),
        (changes(2, "registered"), [], (True, False)),
        (changes(2, "registered", "unfenced", "fenced"), [], (True, False)),
        (changes(2, "registered", "unfenced", "controlled-shutdown"), [], (True, False)),
        # Fenced in the batch of the election, or unfenced in it.
        ([*changes(2, "registered", "unfenced"), *changes(2, "fenced", at=60)], [], (True, False)),
        (changes(2, "registered", "unfenced", at=59), [], (True, False)),
        (changes(2, "registered", "unfenced", at=58), [], (False, False)),
        # In neither set.
        (changes(3, "registered", "unfenced"), [], (True, False)),
        # Its log directory may be offline.
        (changes(2, "registered", "unfenced"), BROKEN, (True, True)),
        (changes(1, "registered", "unfenced"), BROKEN, (False, False)),
        ([], [], (True, False)),
    ],
)
def test_nobody_is_elected_uncleanly_while_a_member_of_the_isr_is_active(
    brokers: list[Row], faults: list[Row], expected: tuple[bool, bool]
) -> None:
    assert flagged_without_elr(faults, brokers, allowed=True, states=IN_ISR) == expected
    elr = [{**IN_ISR[0], "isr": [1], "elr": [2]}, IN_ISR[1]]
    assert flagged_without_elr(faults, brokers, allowed=True, states=elr) == expected


def test_a_member_that_is_no_replica_any_more_cannot_be_elected() -> None:
    moved = [IN_ISR[0], {**IN_ISR[1], "replicas": [3, 4]}]
    brokers = changes(2, "registered", "unfenced")
    assert flagged_without_elr([], brokers, allowed=True, states=moved) == (True, False)


@pytest.mark.parametrize(
    ("at", "healed", "registered", "is_undecided"),
    [
        (25, None, 0, True),
        (59, None, 0, True),
        (60, None, 0, True),
        (61, None, 0, False),  # after the election
        (25, 40, 30, True),
        (25, 40, 40, True),
        (25, 40, 41, False),  # its broker was started again
    ],
)
def test_a_log_is_offline_at_most_from_a_disk_fault_until_its_broker_is_started_again(
    at: int, healed: int | None, registered: int, is_undecided: bool
) -> None:
    brokers = changes(2, "registered", "unfenced", at=registered)
    faults = [fault(at, "io_error", ["b2"], healed=healed)]
    expected = (is_undecided, is_undecided)
    assert flagged_without_elr(faults, brokers, allowed=True, states=IN_ISR) == expected


def test_one_active_member_whose_disk_has_no_fault_is_enough() -> None:
    brokers = [*changes(1, "registered", "unfenced"), *changes(2, "registered", "unfenced")]
    one, both = ([fault(25, "io_error", nodes)] for nodes in (["b1"], ["b1", "b2"]))
    assert flagged_without_elr(one, brokers, allowed=True, states=IN_ISR) == (False, False)
    assert flagged_without_elr(both, brokers, allowed=True, states=IN_ISR) == (True, True)


NOBODY_PROMISED = [state(20, 1, [1], epoch=0), state(40, -1, [], epoch=1)]
"""The ISR never had min ISR members, so that nothing but who is left speaks against an election."""


@pytest.mark.parametrize(
    ("last", "brokers", "is_lawful"),
    [
        ({}, [], True),
        ({"isr": [1]}, [], False),
        ({"elr": [2]}, [], False),
        ({"elr": [3]}, [], False),  # the elected replica itself needs no flag
        ({"elr": [4]}, [], True),  # it is no replica any more
        ({"elr": [2], "min_isr": 1}, [], True),  # min ISR was changed, which may erase the ELR
        ({"elr": [2], "replicas": [1, 2]}, [], True),
        ({"elr": [2]}, [broker(60, 2, "registered", clean=False)], True),
        # The system does not report whether it was clean.
        ({"elr": [2]}, [broker(60, 2, "registered", clean=None)], True),
        ({"elr": [2]}, [broker(60, 2, "unregistered")], True),
        ({"elr": [2]}, [broker(60, 2, "registered", clean=True)], False),
        ({"elr": [2]}, [broker(60, 2, "fenced")], False),
        ({"elr": [2]}, [broker(60, 1, "unregistered")], False),
        ({"elr": [2]}, [broker(59, 2, "unregistered")], False),
        ({"last_known_elr": [3]}, [], True),
        ({"last_known_elr": [1]}, [], False),
    ],
)
def test_the_last_known_leader_is_elected_and_only_if_nobody_is_left(
    last: dict[str, Any], brokers: list[Row], is_lawful: bool
) -> None:
    states = [NOBODY_PROMISED[0], NOBODY_PROMISED[1] | last, SHRUNK[-1]]
    registered = broker(10, 1, "registered", clean=True)
    assert last_election(states, [registered, *brokers], []).is_lawful is is_lawful


@pytest.mark.parametrize("column", ["reconfigures", "allows_unclean"])
@pytest.mark.parametrize(("at", "is_lawful"), [(39, False), (40, True), (60, True), (61, False)])
def test_an_administrator_may_have_emptied_the_elr_until_the_election(
    column: str, at: int, is_lawful: bool
) -> None:
    """What allows an unclean election does so from then on, and the ELR may be erased since its last state."""
    states = [NOBODY_PROMISED[0], NOBODY_PROMISED[1] | {"elr": [2]}, SHRUNK[-1]]
    action = fault(at, "alter_config", ["b1"], **{column: ["t-0"]})
    registered = broker(10, 1, "registered", clean=True)
    is_lawful |= column == "allows_unclean" and at <= 60
    assert last_election(states, [registered], [action]).is_lawful is is_lawful


@pytest.mark.parametrize(
    ("column", "elr", "is_lawful"),
    [
        ("elects_uncleanly", False, False),
        ("elects_uncleanly", True, False),
        ("allows_unclean", True, False),
        ("reconfigures", False, False),
        ("reconfigures", True, True),  # the ELR may have been erased
    ],
)
def test_an_active_member_comes_first_also_if_an_unclean_election_is_allowed(
    column: str, elr: bool, is_lawful: bool
) -> None:
    first = IN_ISR[0] | ({"isr": [1], "elr": [2]} if elr else {})
    action = fault(55, "alter_config", ["b1"], **{column: ["t-0"]})
    found = last_election([first, IN_ISR[1]], changes(2, "registered", "unfenced"), [action])
    assert found.is_lawful is is_lawful


@pytest.mark.parametrize("column", ["elects_uncleanly", "allows_unclean"])
@pytest.mark.parametrize(
    ("at", "error", "expected"),
    [
        (55, 4, (True, False)),
        (55, 5, (True, False)),
        (56, 5, (True, True)),
        (60, 0, (True, False)),
        (60, 1, (True, True)),
        (61, 1, (True, True)),
        (61, 0, (False, False)),
        (65, 5, (True, True)),
        (66, 5, (False, False)),
    ],
)
def test_an_action_at_about_the_time_of_an_election_may_have_been_before_it_or_after_it(
    column: str, at: int, error: int, expected: tuple[bool, bool]
) -> None:
    found = Elections(
        table("partition_states", SHRUNK),
        table("replica_states", []),
        table("broker_states", []),
        table("faults", [fault(at, "alter_config", [], **{column: ["t-0"]})]),
        elr_on=False,
        clock_error_ns=error,
    ).elections[-1]
    assert (found.is_lawful, found.is_undecided) == expected


def test_a_flagged_election_excuses_unless_something_is_known_against_it() -> None:
    assert Election(at_ns=10, leader=1, leader_epoch=1, is_flagged=True).excuses
    assert not Election(at_ns=10, leader=1, leader_epoch=1, is_flagged=False).may_excuse


def test_broker_0_may_be_elected() -> None:
    assert last_election([state(20, 0, [0], epoch=0)], [], []).leader == 0


@pytest.mark.parametrize(
    ("at", "is_lawful"), [(19, False), (20, True), (25, True), (50, True), (60, True), (61, False)]
)
def test_an_administrator_may_change_a_partition_from_its_full_isr_to_the_election(
    at: int, is_lawful: bool
) -> None:
    """The ISR was full until 30, from 20 on; the election was at 60."""
    change = fault(at, "alter_config", ["b1"], reconfigures=["t-0"])
    registrations = [broker(10, 1, "registered", clean=True)]
    assert last_election(SHRUNK, registrations, [change]).is_lawful is is_lawful


@pytest.mark.parametrize(("at", "is_lawful"), [(5, True), (59, True), (60, True), (61, False)])
def test_an_administrator_may_have_allowed_unclean_elections_until_the_election(
    at: int, is_lawful: bool
) -> None:
    allows = fault(at, "alter_config", ["b1"], allows_unclean=["t-0"])
    registrations = [broker(10, 1, "registered", clean=True)]
    assert last_election(SHRUNK, registrations, [allows]).is_lawful is is_lawful


def test_states_that_are_missing_after_an_election_do_not_matter_for_it() -> None:
    states = [*SHRUNK, state(90, 3, [3], epoch=9)]
    found = Elections(
        table("partition_states", states),
        table("replica_states", []),
        table("broker_states", [broker(10, 1, "registered", clean=True)]),
        table("faults", []),
        elr_on=True,
    )
    (election,) = (one for one in found.elections if one.at_ns == 60)
    assert (election.is_lawful, election.is_undecided) == (False, False)


# --- requests, and replicas that were alone ---


def rows_of(states: list[Row]) -> list[Row]:
    rows: list[Row] = table("partition_states", states).to_pylist()
    return rows


@pytest.mark.parametrize(("until_ns", "is_certain"), [(29, True), (30, False), (31, False)])
def test_a_request_may_be_used_up_by_an_election_that_is_not_recorded(
    until_ns: int, is_certain: bool
) -> None:
    request = fault(30, "elect_leader", ["b2"], elects_uncleanly=["t-0"])
    requested = Requested(table("faults", [request]).to_pylist(), "t-0")
    requested.may_have_been_taken(until_ns)
    objection = requested.take({"at_ns": 60, "flagged": True})
    assert (objection == NO_OBJECTION) is is_certain
    assert objection is not None
    assert requested.take({"at_ns": 61, "flagged": True}) is None


def test_a_request_at_the_moment_of_an_election_explains_this_one_only() -> None:
    request = fault(60, "elect_leader", ["b2"], elects_uncleanly=["t-0"])
    requested = Requested(table("faults", [request]).to_pylist(), "t-0")
    assert requested.take({"at_ns": 59, "flagged": True}) is None
    assert requested.take({"at_ns": 60, "flagged": True}) == NO_OBJECTION
    assert requested.take({"at_ns": 61, "flagged": True}) is None


LONE = [
    state(10, 1, [1, 2], epoch=0, min_isr=1),
    state(20, 1, [1], epoch=0, min_isr=1),
    state(40, -1, [1], epoch=1, min_isr=1),
]


@pytest.mark.parametrize(
    ("states", "wiped", "since"),
    [
        (LONE, "b1", [(20, 20)]),
        ([LONE[0], LONE[2]], "b1", []),
        (LONE[1:], "b1", [(20, 20)]),
        ([{**row, "min_isr": 2} for row in LONE], "b1", []),
        # The leader may not have heard yet that it was raised.
        ([*LONE[:1], state(20, 1, [1], epoch=0, min_isr=2), *LONE[2:]], "b1", [(INF_NS, 20)]),
        (LONE, "b2", []),
    ],
    ids=["alone", "never-alone", "alone-from-the-start", "min-isr-of-2", "raised", "another-node"],
)
def test_a_replica_was_alone_since_the_isr_had_no_other_member(
    states: list[Row], wiped: str, since: list[tuple[int, int]]
) -> None:
    found = destroyed([*states, state(50, 1, [1], epoch=2, min_isr=1)], None, wiped)
    assert [(one.since_ns, one.perhaps_since_ns) for one in found] == since
    assert all(one.until_ns == 35 for one in found)


def destroyed(
    states: list[Row], led: dict[int, Led] | None = None, wiped: str = "b1"
) -> tuple[Alone, ...]:
    """What a fault that begins at 30 and ends at 35 had destroyed before the election in the last state."""
    rows = rows_of(states)
    faults = table("faults", [fault(30, "wipe", [wiped], healed=35)])
    gaps = MetadataGaps(rows, NOTHING_SHOWN)
    return Destroyed(rows, gaps, faults, {1: "b1", 2: "b2"}, {}).before(len(rows) - 1, led or {})


@pytest.mark.parametrize(
    ("after", "since"),
    [
        # Read at 20, the leader was alone since 12 perhaps.
        ([None, 12, None, None], [(20, 20), (INF_NS, 12)]),
        # The election before it was read at 40: the fault, completed at 30, explains nothing if it was before.
        ([None, None, 30, None], [(INF_NS, 20)]),
        ([None, None, 31, None], []),
        # The last election was perhaps before the fault.
        ([None, None, None, 29], [(INF_NS, 20)]),
    ],
    ids=["alone", "previous", "previous-certainly-later", "elected"],
)
def test_of_states_that_were_read_late_every_moment_counts(
    after: list[int | None], since: list[tuple[int, int]]
) -> None:
    elected = [state(40, 1, [1], epoch=1, min_isr=1), state(50, 1, [1], epoch=2, min_isr=1)]
    states = [*LONE[:2], *elected]
    late = [{**row, "after_ns": after_ns} for row, after_ns in zip(states, after, strict=True)]
    led = {} if after[2] is None else {1: Led(earliest_ns=after[2], at_ns=40)}
    found = destroyed(late, led)
    assert [(one.since_ns, one.perhaps_since_ns) for one in found] == since


def test_a_state_that_was_read_late_may_have_been_in_force_when_a_fault_began() -> None:
    shrunk = state(40, 1, [1], epoch=0, min_isr=1)
    elected = state(50, 1, [1], epoch=2, min_isr=1)
    for after_ns, since in ((28, [(INF_NS, 28)]), (36, [])):
        found = destroyed([LONE[0], {**shrunk, "after_ns": after_ns}, elected])
        assert [(one.since_ns, one.perhaps_since_ns) for one in found] == since


@pytest.mark.parametrize(("after_ns", "since_ns"), [(None, 10), (7, 7)])
def test_a_leader_may_have_been_alone_since_the_last_state_before_missing_ones(
    after_ns: int | None, since_ns: int
) -> None:
    first = {**LONE[0], "after_ns": after_ns}
    alone = state(20, 1, [1], epoch=0, min_isr=1, partition_epoch=2)
    elected = state(50, 1, [1], epoch=1, min_isr=1, partition_epoch=3)
    found = destroyed([first, alone, elected])
    assert [(one.since_ns, one.perhaps_since_ns) for one in found] == [(20, 20), (INF_NS, since_ns)]


def test_missing_states_may_hide_a_flagged_election_that_gave_up_the_other_replicas() -> None:
    """Then only the elected one has to have what others that were in the ISR have too, whenever that came."""
    alone, elected = state(20, 1, [1], epoch=2, min_isr=1), state(50, 1, [1], epoch=3, min_isr=1)
    found = destroyed([LONE[0], alone, elected])
    assert [(one.since_ns, one.perhaps_since_ns) for one in found] == [(20, 20), (INF_NS, -INF_NS)]
