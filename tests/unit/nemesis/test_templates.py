"""Templates of faults: drawn only where they are named, and only with what the environment can do."""

from random import Random

import pytest

from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.planned import planned_schedule
from nemesis.administration import ACTIONS
from nemesis.fault import fault_from_json
from nemesis.faults import FAULTS, Targets
from nemesis.schedule import FAMILIES, Rhythm, random_schedule
from nemesis.templates import TEMPLATES


def draw(seed, templates, *, families=(), actions=ACTIONS, observes_nodes=True):
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
    )


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
            assert fault.trigger is None or fault.trigger.kind.is_committed
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
    assert {"isr-shrink"} == events("configuration")
    assert {"controller-election", "mark", "sent"} == events("quorum-election")
    assert {"sent"} == events("late-markers")
    for name in (
        *("flapping", "slow-majority", "rolling-restart", "controller-siege", "late-requests"),
    ):
        assert events(name) == set()


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
    assert of_messages & messages == of_messages - {"reorder_messages", "refuse_messages"}


def test_controllers_go_away_when_they_are_elected_alone_or_together():
    faults = [f for seed in range(40) for f in draw(seed, ("quorum-election",))]
    waiting = [f for f in faults if f.trigger is not None]
    alone = [f for f in waiting if "at" in f.trigger.qualifiers]
    assert {f.targets for f in alone} == {("c11",), ("c12",), ("c13",)}
    assert all(f.trigger.qualifiers["at"] == f.targets[0] for f in alone)
    assert {f.nth for f in alone} == {1, 2, 3}
    together = [f for f in waiting if f not in alone]
    assert {f.targets for f in together} == {("controllers",), ("majority_controllers",)}
    assert {"power", "kill"} == {f.fault for f in together}
    assert not any(f.params for f in faults if f.fault == "isolate")


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
    schedule = planned_schedule(load('"quorum-election"'), 1)
    assert {"c11", "c12", "c13"} & {target for fault in schedule for target in fault.targets}
    local = planned_schedule(load('"recovery"', on="local"), 1)
    assert all(f.trigger is None or f.trigger.kind.is_committed for f in local)


@pytest.mark.parametrize(
    ("templates", "on", "hint"),
    [
        ('"recoverie"', "simulation", "did you mean 'recovery'"),
        ('"late-messages"', "local", "only the simulation can inject"),
    ],
)
def test_templates_that_are_not_possible_are_refused(templates, on, hint):
    with pytest.raises(UsageError, match=hint):
        load(templates, on)
