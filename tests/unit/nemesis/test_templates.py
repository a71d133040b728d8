"""Templates of faults: drawn only where they are named, and only with what the environment can do."""

from itertools import pairwise
from random import Random

import pytest

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.planned import planned_schedule
from nemesis.administration import ACTIONS
from nemesis.fault import fault_from_json
from nemesis.faults import FAULTS, Targets
from nemesis.schedule import FAMILIES, Rhythm, _some_of, random_schedule
from nemesis.targets import OF_CONTROLLERS
from nemesis.templates import TEMPLATES, WINDOWS


def draw(seed, templates, *, families=(), actions=ACTIONS, observes_nodes=True, log_dirs=2):
    return random_schedule(
        Random(seed),
        families=families,
        duration_ms=12_000,
        partitions=["t-0", "t-1"],
        rhythm=Rhythm(gap_ms=500, hold_ms=900, step_ms=300),
        actions=actions,
        templates=templates,
        brokers=["b1", "b2", "b3"],
        controllers=["c11", "c12", "c13"],
        observes_nodes=observes_nodes,
        log_dirs=log_dirs,
    )


def drawn(name, **options):
    return [fault for seed in range(40) for fault in draw(seed, (name,), **options)]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_draws_lawful_faults_that_are_healed_and_survive_json(name):
    for seed in range(20):
        schedule = draw(seed, (name,))
        assert schedule
        assert schedule == draw(seed, (name,))
        for fault in schedule:
            assert (fault.for_ms is None) == fault.type.is_momentary
            read = fault_from_json(fault.to_json(), default_id="x")
            assert read.to_json() == fault.to_json()


@pytest.mark.parametrize("name", [n for n, one in TEMPLATES.items() if not one.needs_simulation])
def test_where_nodes_are_not_observed_faults_wait_for_committed_changes_only(name):
    for seed in range(30):
        for fault in draw(seed, (name,), observes_nodes=False):
            assert all(trigger.kind.is_committed for trigger in fault.triggers)
            assert fault.type.targets is not Targets.MESSAGES


def test_without_served_actions_none_are_drawn():
    drawn = [f.fault for seed in range(30) for f in draw(seed, tuple(TEMPLATES), actions=())]
    assert not set(drawn) & set(ACTIONS)
    assert {"reassign", "alter_config"} <= {
        f.fault for seed in range(30) for f in draw(seed, tuple(TEMPLATES))
    }


def test_every_waiting_template_names_its_moment():
    def events(name):
        faults = [f for seed in range(40) for f in draw(seed, (name,))]
        return {f.trigger.kind.name for f in faults if f.trigger is not None}

    assert {"unfencing", "isr-expand", "received", "sent", "mark"} <= events("catch-up")
    assert {"registration", "unfencing", "fsync"} == events("recovery")
    assert {"controller-election", "mark", "sent"} == events("controller-fail-over")
    assert {"replicas-change", "isr-expand", "isr-shrink", "sent"} == events("reassignment")
    assert {"election", "leader-change", "elr-change"} <= events("election")
    assert {"isr-shrink", "elr-change", "leader-loss"} == events("configuration")
    assert {"received", "isr-shrink", "election", "isr-expand"} == events("late-watermark")
    assert {"mark"} == events("quorum-election")
    assert {"sent"} == events("late-markers")
    for name in (
        *("flapping", "slow-majority", "rolling-restart", "controller-siege", "late-requests"),
    ):
        assert events(name) == set()


HEALED_AT = {
    "joins-without-its-log": {"fencing", "unfencing", "election"},
    "joins-by-an-old-fetch": {"unfencing", "election"},
    "joins-by-a-copied-proposal": {"fencing", "isr-shrink", "election"},
    "late-watermark": {"election"},
    "joins-unknown-to-its-leader": {"fencing", "election"},
    "leads-again": {"election", "leader-loss"},
    "late-settings": {"election"},
    "one-publish": {"election", "elr-change", "unfencing"},
    "last-member-loses-data": {"election"},
    "deposed-in-one-publish": {"election"},
    "unnoticed-loss": {"election"},
    "stopped-while-starting": {"election"},
    "fenced-in-the-isr": {"election", "isr-expand", "isr-shrink"},
    "replica-sets": {"election"},
    "removed-unnoticed": {"election"},
    "silent-followers": {"election"},
    "prefers-a-lagging-replica": {"election"},
    "moves-between-elections": {"election", "received"},
    "quorum-election": {"mark"},
    "quorum-loses-power": {"mark"},
    "quorum-without-majority": {"mark", "received"},
    "late-batch": {"received"},
    "marker-in-another-transaction": {"fencing"},
}
"""By template: the events at which its faults are healed."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_faults_of_window_templates_last_until_an_event(name):
    found = {
        fault.healing_trigger.kind.name
        for seed in range(40)
        for fault in draw(seed, (name,))
        if fault.healing_trigger is not None
    }
    assert found == HEALED_AT.get(name, set())


def test_three_of_four_seeds_use_few_templates_and_the_others_most_of_them():
    names = tuple(TEMPLATES)
    drawn_names = [_some_of(Random(seed), names) for seed in range(400)]
    assert {name for some in drawn_names if len(some) <= 2 for name in some} == {*WINDOWS}
    used = [len(some) for some in drawn_names]
    few = [count for count in used if count <= 2]
    assert 260 < len(few) < 340
    assert set(few) == {1, 2}
    most = [count for count in used if count > 2]
    assert len(names) * 0.5 < sum(most) / len(most) < len(names) * 0.7
    assert _some_of(Random(1), ()) == []


OF_DIRECTORIES = {"move_replica", "log_dir_error", "wipe_log_dir"}
WITHOUT_MOVES = tuple(name for name in ACTIONS if name != "move_replica")


def test_faults_of_log_directories_are_drawn_only_where_brokers_have_several():
    for name in ("moving-replicas", "replaced-directory"):
        alone = drawn(name, actions=WITHOUT_MOVES, log_dirs=1)
        assert alone
        assert not OF_DIRECTORIES & {fault.fault for fault in alone}
    assert {fault.fault for fault in drawn("replaced-directory")} >= OF_DIRECTORIES
    numbers = {
        fault.params["log_dir"]
        for fault in drawn("replaced-directory", log_dirs=3)
        if "log_dir" in fault.params
    }
    assert numbers == {1, 2, 3}


def test_where_nodes_are_not_observed_no_directory_fails_and_no_metadata_thread_is_stalled():
    for name in ("late-settings", "replaced-directory"):
        faults = {fault.fault for fault in drawn(name, observes_nodes=False)}
        assert not faults & {"stall_metadata", "log_dir_error", "wipe_log_dir"}
    held = {fault.fault for fault in drawn("nobody-leads", observes_nodes=False)}
    assert "hold_messages" not in held


def test_brokers_lose_power_while_they_are_down_alone_or_with_a_majority():
    faults = drawn("power-while-down")
    cuts = [fault for fault in faults if fault.fault == "power"]
    while_down = {fault.targets for fault in cuts if "down" in fault.targets}
    others = {(), ("leader:t-0",), ("majority",), ("majority", "majority_controllers")}
    assert {targets[1:] for targets in while_down} >= others
    assert all(fault.trigger for fault in cuts if "down" in fault.targets)
    assert ("majority",) in {fault.targets for fault in cuts}
    ended = {(fault.fault, fault.params.get("op")) for fault in faults} - {("power", None)}
    assert ended >= {("io_error", "fsync"), ("kill", None), ("oom", None), ("stop", None)}
    alone = {
        target
        for seed in range(40)
        for fault in random_schedule(
            Random(seed),
            families=(),
            duration_ms=12_000,
            partitions=["t-0"],
            rhythm=Rhythm(gap_ms=500, hold_ms=900, step_ms=300),
            templates=("power-while-down",),
            brokers=["b1", "b2", "b3"],
            has_controllers=False,
        )
        for target in fault.targets
    }
    assert "majority" in alone
    assert not {target for target in alone if "controller" in target}


def values(faults):
    return tuple(fault.params["value"] for fault in faults if fault.fault == "alter_config")


def test_late_settings_raise_min_isr_behind_the_leader_or_lower_it_when_it_is_alone():
    for seed in range(20):
        faults = draw(seed, ("late-settings",))
        changes = [fault for fault in faults if fault.fault == "alter_config"]
        assert {fault.params["key"] for fault in changes} == {"min.insync.replicas"}
        for first, second in zip(changes[::2], changes[1::2], strict=False):
            assert first.trigger is None
            raised, lowered = ((1, 2), None), ((2, 1), "elr-change")
            kind = second.trigger and second.trigger.kind.name
            assert (values((first, second)), kind) in (raised, lowered)
    stalled = [fault.targets for fault in drawn("late-settings") if fault.fault == "stall_metadata"]
    assert set(stalled) == {("leader:t-0",), ("leader:t-1",)}


def test_followers_are_fenced_while_the_leader_hears_of_no_metadata_and_min_isr_is_raised():
    faults = drawn("one-publish")
    fenced = [fault for fault in faults if fault.fault == "hold_messages"]
    assert {fault.params["messages"] for fault in fenced} == {
        "BrokerHeartbeat from follower:t-0",
        "BrokerHeartbeat from follower:t-1",
    }
    assert {fault.until.partition(" ")[0] for fault in fenced} == {"elr-change"}
    assert {value for value in values(faults)} == {1, 2}


def test_all_replicas_are_fenced_before_min_isr_changes_without_a_leader():
    faults = drawn("nobody-leads")
    held = {fault.params["messages"] for fault in faults if fault.fault == "hold_messages"}
    assert held == {"BrokerHeartbeat from broker"}
    changed = {fault.trigger.kind.name for fault in faults if fault.fault == "alter_config"}
    assert changed == {"leader-loss"}


def test_the_last_member_of_the_isr_loses_power_after_a_neighbour_shrank_or_followers_moved():
    faults = drawn("last-member-loses-data")
    reassigned = [fault for fault in faults if fault.fault == "reassign"]
    assert {fault.params["partition"] for fault in reassigned} == {"t-0"}
    assert {fault.params["replicas"] for fault in reassigned} == {(1,), (2,), (3,)}
    moved = {fault.targets for fault in faults if fault.fault == "move_replica"}
    assert moved == {("followers:t-0",), ("followers:t-1",)}
    # Another min ISR would make the loss lawful.
    assert not values(faults)


def test_brokers_are_stopped_again_when_they_register():
    again = [f for f in drawn("stopped-while-starting") if f.fault == "stop" and f.trigger]
    assert {"registration at b1", "registration at b2", "registration at b3"} < {
        f.on for f in again
    }
    assert {f.on.partition(" ")[0] for f in again} == {"registration", "elr-change"}


@pytest.mark.parametrize(
    ("name", "counts"),
    [("replica-sets", {0, 2, 3}), ("moves-to-who-is-away", {2, 3}), ("removed-unnoticed", {2, 3})],
)
def test_replicas_are_removed_and_added_again_or_moved_to_who_is_away(name, counts):
    """No replicas cancel a reassignment."""
    reassigned = [fault.params["replicas"] for fault in drawn(name) if fault.fault == "reassign"]
    assert {len(replicas) for replicas in reassigned} == counts
    assert {broker for replicas in reassigned for broker in replicas} == {1, 2, 3}
    assert all(len(set(replicas)) == len(replicas) for replicas in reassigned)


def test_the_preferred_leader_is_elected_when_it_lags():
    elections = [f for f in drawn("prefers-a-lagging-replica") if f.fault == "elect_leader"]
    assert all("election" not in fault.params for fault in elections)
    kinds = {fault.trigger and fault.trigger.kind.name for fault in elections}
    assert kinds == {None, "replicas-change"}


def test_without_its_action_a_template_still_draws_faults():
    for name in (
        *("late-settings", "one-publish", "deposed-in-one-publish", "configuration"),
        *("replica-sets", "moves-to-who-is-away", "removed-unnoticed"),
    ):
        assert {fault.fault for fault in drawn(name, actions=())} & {"isolate", "kill", "power"}


def test_no_burst_begins_while_faults_of_another_one_wait_for_events():
    """A burst of this template is one fault, and goes on for four mean times of a fault."""
    gaps_ms = [
        later.at_ms - fault.at_ms
        for seed in range(20)
        for fault, later in pairwise(draw(seed, ("at-once",)))
    ]
    assert len(gaps_ms) > 20
    assert min(gaps_ms) >= 4 * 900


def test_controllers_are_never_separated_on_a_plane_that_they_do_not_use():
    of_controllers = [
        f
        for seed in range(150)
        for f in draw(
            seed, ("controller-siege",), families=("controller", "isolate", "loss", "delay")
        )
        if f.targets and {*f.targets} <= {*OF_CONTROLLERS, "c11", "c12", "c13"}
    ]
    assert {f.fault for f in of_controllers} >= {"isolate", "loss", "delay"}
    assert not [f for f in of_controllers if "inter-broker" in f.params.get("planes", ())]


def test_rolling_restarts_reach_every_broker_and_sieges_end_in_a_strike_on_controllers():
    restarted = {
        target
        for seed in range(5)
        for f in draw(seed, ("rolling-restart",))
        for target in f.targets
    }
    assert restarted == {"b1", "b2", "b3"}
    struck = {
        target
        for seed in range(40)
        for f in draw(seed, ("controller-siege",))
        if f.fault in ("power", "kill")
        for target in f.targets
    }
    assert {"majority_controllers", "controllers", "active_controller"} <= struck
    messages = {f.fault for seed in range(30) for f in draw(seed, ("late-messages",))}
    of_messages = {name for name, row in FAULTS.items() if row.targets is Targets.MESSAGES}
    assert of_messages & messages == of_messages - {"refuse_messages"}


def test_who_is_elected_is_alone_and_the_other_controllers_lose_power():
    waiting = [f for f in drawn("quorum-election") if f.trigger is not None]
    lost = [f for f in waiting if len(f.targets) == 2]
    assert {f.fault for f in lost} == {"power"}
    assert all({*f.targets, f.trigger.qualifiers["at"]} == {"c11", "c12", "c13"} for f in lost)
    alone = [f for f in waiting if f not in lost]
    assert {f.fault for f in alone} == {"isolate"}
    assert all(f.targets == (f.trigger.qualifiers["at"],) for f in alone)
    assert not any(f.params for f in alone)


def test_slow_controllers_go_away_whenever_they_are_elected():
    waiting = [f for f in drawn("slow-controllers") if f.trigger is not None]
    assert all(f.targets == (f.trigger.qualifiers["at"],) for f in waiting)
    assert {f.nth for f in waiting} == {1, 2, 3}
    powered = {f.targets for f in drawn("quorum-loses-power") if f.fault == "power"}
    assert powered == {("controllers",)}


def test_controllers_that_could_not_flush_lose_power_after_the_next_election():
    faults = [f for seed in range(20) for f in draw(seed, ("failed-fsyncs",))]
    failed = [f for f in faults if f.fault == "io_error"]
    assert {f.params["op"] for f in failed} == {"fsync"}
    assert {f.targets for f in failed} == {("controllers",), ("majority_controllers",)}
    lost = [f for f in faults if f.fault == "power"]
    assert {f.targets for f in lost} == {("controllers",)}
    assert {f.trigger.kind.name for f in lost if f.trigger is not None} == {"mark"}


def test_where_nodes_are_not_observed_controllers_are_elected_when_that_is_committed():
    faults = drawn("quorum-election", observes_nodes=False)
    events = {f.trigger.kind.name for f in faults if f.trigger is not None}
    healed = {f.healing_trigger.kind.name for f in faults if f.healing_trigger is not None}
    assert events == healed == {"controller-election"}


def test_a_controller_is_cut_off_until_the_active_one_has_copied_its_older_record():
    faults = [f for seed in range(20) for f in draw(seed, ("quorum-without-majority",))]
    elected = [f for f in faults if f.trigger is not None]
    assert {f.on for f in elected} == {
        "mark:quorum-leader-elected at c11",
        "mark:quorum-leader-elected at c12",
        "mark:quorum-leader-elected at c13",
    }
    assert {f.until for f in elected} == {"received:Fetch from controller to active_controller"}
    assert {f.targets for f in faults if f.fault == "slow_disk"} == {("active_controller",)}


def test_late_requests_are_late_for_clients_or_for_brokers_and_markers_of_one_coordinator_wait():
    delays = [f for seed in range(40) for f in draw(seed, ("late-requests",)) if f.fault == "delay"]
    assert {f.params["planes"] for f in delays} == {("client",), ("inter-broker",)}
    assert all(300 <= f.params["ms"] <= 3000 for f in delays)
    for seed in range(20):
        faults = {f.fault: f for f in draw(seed, ("late-markers",)) if f.at_ms < 4000}
        holds = faults.pop("hold_messages", None)
        for fault in faults.values():
            assert holds is not None
            assert fault.trigger.qualifiers["from"] == fault.targets[0]


def test_without_templates_a_seed_draws_what_it_drew_before_there_were_any():
    def plain(**more):
        return random_schedule(
            Random(3),
            families=FAMILIES,
            duration_ms=20_000,
            partitions=["t-0"],
            rhythm=Rhythm(),
            **more,
        )

    assert plain() == plain(brokers=["b1"], observes_nodes=True)
    assert not any(fault.on for fault in plain())


EXPERIMENT = """
on = "{on}"
[nemesis]
faults = ["kill"]
templates = [{templates}]
"""


def load(templates, on="simulation"):
    return experiments.loads(EXPERIMENT.format(on=on, templates=templates), origin="x")


def test_an_experiment_names_its_templates():
    schedule = planned_schedule(load('"recovery"'), 1)
    assert any(fault.on.endswith(("at b1", "at b2", "at b3")) for fault in schedule)
    schedule = planned_schedule(load('"quorum-without-majority"'), 1)
    assert {"c11", "c12", "c13"} & {target for fault in schedule for target in fault.targets}
    local = planned_schedule(load('"recovery"', on="local"), 1)
    assert all(f.trigger is None or f.trigger.kind.is_committed for f in local)


@pytest.mark.parametrize(
    ("templates", "on", "hint"),
    [
        ('"recoverie"', "simulation", "did you mean 'recovery'"),
        ('"late-messages"', "local", "drawn for the simulation only"),
    ],
)
def test_templates_that_are_not_possible_are_refused(templates, on, hint):
    with pytest.raises(UsageError, match=hint):
        load(templates, on)
