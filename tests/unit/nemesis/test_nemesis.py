import asyncio
import hashlib
import json
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from harness.contracts.cluster import Population
from harness.contracts.metadata import CommittedMetadata, PartitionState
from harness.errors import UsageError
from nemesis.administration import ACTIONS
from nemesis.driver import Nemesis
from nemesis.fault import Fault, fault_from_json
from nemesis.faults import FAULT_NAMES, FAULTS, names
from nemesis.mechanism import Effect
from nemesis.schedule import ADMIN, FAMILIES, Rhythm, random_schedule
from nemesis.targets import resolve, resolve_all

POPULATION = Population(
    brokers=(("b1", 1), ("b2", 2), ("b3", 3)),
    controllers=(("c11", 11), ("c12", 12), ("c13", 13)),
    clients=("client-0",),
    down=("b3",),
)


def metadata(leader=1, isr=(1, 2), elr=(), last_known=()):
    view = CommittedMetadata(active_controller=12)
    view.partitions["t-0"] = PartitionState(
        topic="t",
        partition=0,
        replicas=(1, 2, 3),
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        isr=isr,
        elr=elr,
        last_known_elr=last_known,
        min_isr=2,
    )
    return view


@pytest.mark.parametrize(
    ("selector", "view", "expected"),
    [
        ("b2", metadata(), ("b2",)),
        ("client-0", metadata(), ("client-0",)),
        ("leader:t-0", metadata(), ("b1",)),
        ("leader", metadata(leader=-1), ()),
        ("leader_or_replica:t-0", metadata(leader=2), ("b2",)),
        ("leader_or_replica", metadata(leader=-1), ("b1",)),
        ("followers:t-0", metadata(), ("b2", "b3")),
        ("isr_follower:t-0", metadata(), ("b2",)),
        ("last_in_isr:t-0", metadata(), ()),
        ("last_in_isr:t-0", metadata(isr=(1,)), ("b1",)),
        ("elr_member:t-0", metadata(isr=(), leader=-1, elr=(3,)), ("b3",)),
        ("last_known_leader:t-0", metadata(last_known=(2,)), ("b2",)),
        ("active_controller", metadata(), ("c12",)),
        ("controllers", metadata(), ("c11", "c12", "c13")),
        ("all", metadata(), ("b1", "b2", "b3")),
        ("down", metadata(), ("b3",)),
        ("leader", CommittedMetadata(), ()),
    ],
)
def test_a_selector_resolves_by_name_role_and_state(selector, view, expected):
    assert resolve(selector, POPULATION, view, Random(1)) == expected


@pytest.mark.parametrize(("selector", "count"), [("one", 1), ("minority", 1), ("majority", 2)])
def test_counting_selectors_take_that_many_brokers(selector, count):
    names = resolve(selector, POPULATION, metadata(), Random(3))
    assert len(names) == count
    assert set(names) <= {"b1", "b2", "b3"}


@pytest.mark.parametrize("selector", ["b9", "leeder:t-0", "leader:t-7"])
def test_a_selector_that_names_nothing_is_an_error_with_a_hint(selector):
    with pytest.raises(UsageError, match="known:"):
        resolve(selector, POPULATION, metadata(), Random(1))


NEVER_DRAWN = {
    *("start", "heal", "truncate_file", "log_dir_error", "wipe_log_dir", "stall_metadata"),
    *(name for name in FAULT_NAMES if name.endswith("_messages")),
    *ACTIONS,
}
"""Faults that only scripted schedules use, or only schedules that name them."""


def draw(seed, families=FAMILIES, actions=(), has_controllers=True):
    return random_schedule(
        Random(seed),
        families=families,
        duration_ms=20000,
        partitions=["t-0", "t-1"],
        rhythm=Rhythm(),
        actions=actions,
        has_controllers=has_controllers,
    )


def test_a_system_without_controllers_gets_no_partition_of_controllers():
    def targets(**options):
        faults = [fault for seed in range(40) for fault in draw(seed, ("partition",), **options)]
        return {target for fault in faults for target in fault.targets if ":" not in target}

    assert targets() == {"all", "controllers"}
    assert targets(has_controllers=False) == {"all"}


def test_actions_are_drawn_only_by_name_and_among_those_that_are_served():
    families = (ADMIN, "power")
    served = {fault.fault for seed in range(40) for fault in draw(seed, families, ACTIONS)}
    assert served == {"power", *ACTIONS} - {"alter_feature"}
    some = [fault for seed in range(40) for fault in draw(seed, families, ("alter_config",))]
    assert {fault.fault for fault in some} == {"power", "alter_config"}
    values = {fault.params["value"] for fault in some if fault.fault == "alter_config"}
    assert values == {1, 2}
    assert all(fault.for_ms is None for fault in some if fault.fault == "alter_config")
    elections = {
        fault.value("election")
        for seed in range(40)
        for fault in draw(seed, (ADMIN,), ("elect_leader",))
    }
    assert elections == {"preferred", "unclean"}


def test_drawn_elections_wait_until_they_can_change_something():
    faults = [
        fault for seed in range(40) for fault in draw(seed, (ADMIN, "kill"), ("elect_leader",))
    ]
    events = {
        (fault.value("election"), fault.on.partition(" ")[0])
        for fault in faults
        if fault.fault == "elect_leader" and fault.on
    }
    assert events == {("preferred", "isr-expand"), ("unclean", "leader-loss")}
    for before, election in pairwise(faults):
        if election.on.startswith("isr-expand"):
            assert (before.fault, before.at_ms) == ("kill", election.at_ms)
            assert before.targets == (f"leader:{election.params['partition']}",)


def test_a_schedule_is_a_function_of_its_stream_and_survives_json():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)
    for fault in draw(5):
        assert (
            fault_from_json(json.loads(json.dumps(fault.to_json())), default_id="x").to_json()
            == fault.to_json()
        )


def test_schedules_use_only_enabled_families_and_reach_all_of_them():
    kinds = {fault.fault for seed in range(60) for fault in draw(seed)}
    assert kinds == set(FAULT_NAMES) - NEVER_DRAWN
    for families in ({"cut", "kill"}, {"log_dir_error", "kill"}):
        only = {fault.fault for seed in range(20) for fault in draw(seed, sorted(families))}
        assert only == families
    controllers = {
        fault.fault for seed in range(60) for fault in draw(seed, ("controller", "delay"))
    }
    assert controllers == {"isolate", "kill", "power", "pause", "delay"}


def test_what_the_first_families_draw_does_not_change_with_new_ones():
    """Stored seeds mean something: a new family may not move the schedules of experiments that lack it."""
    first = FAMILIES[:7]
    assert first == ("cut", "isolate", "pause", "stop", "kill", "power", "controller")
    digest = hashlib.blake2b(digest_size=8)
    for seed in range(30):
        for families in (first, first[:3], first[3:]):
            for fault in draw(seed, families):
                digest.update(json.dumps(fault.to_json(), sort_keys=True).encode())
    assert digest.hexdigest() == "c094e25a4aef7062"


def test_data_destroying_faults_are_drawn_rarely_and_only_on_brokers():
    drawn = [fault for seed in range(80) for fault in draw(seed)]
    spoiled = [fault for fault in drawn if fault.fault in ("wipe", "bit_flip")]
    assert 0 < len(spoiled) < len(drawn) / 20
    assert not any("controller" in target for fault in spoiled for target in fault.targets)


def test_drawn_clock_errors_have_both_directions_and_very_different_sizes():
    steps = [f.params["ms"] for seed in range(200) for f in draw(seed) if f.fault == "clock_step"]
    assert min(steps) < -60_000
    assert max(steps) > 60_000
    assert any(abs(step) < 1000 for step in steps)
    rates = [f.params["ppm"] for seed in range(200) for f in draw(seed) if f.fault == "clock_drift"]
    assert all(0 < abs(rate) <= 200_000 for rate in rates)
    assert any(rate < -20_000 for rate in rates)
    assert any(0 < rate <= 500 for rate in rates)


def test_faults_begin_in_time_in_order_and_every_one_is_healed():
    for seed in range(40):
        faults = draw(seed)
        assert [f.at_ms for f in faults] == sorted(f.at_ms for f in faults)
        assert all(0 <= f.at_ms < 20000 for f in faults)
        assert all((f.for_ms is None) == f.type.is_momentary for f in faults)
        assert len({f.id for f in faults}) == len(faults)


class FakeCluster:
    """Three brokers, three controllers, and a clock that counts."""

    def __init__(self):
        self.metadata = metadata()
        self.now = 0

    def population(self):
        return POPULATION

    def now_ns(self):
        self.now += 1
        return self.now


class FakeInjector:
    """Records its calls; every fault takes effect."""

    supported_faults = frozenset(FAULT_NAMES)

    def __init__(self):
        self.calls = []
        self.params = []
        self.is_settled = False

    async def inject(self, fault, nodes):
        self.calls.append(("inject", fault.fault, nodes))
        self.params.append(fault.params)
        return FakeInjection(self, fault.fault, nodes)

    async def settle(self):
        self.is_settled = True


class FakeInjection:
    def __init__(self, injector, fault, nodes):
        self.injector, self.fault, self.nodes = injector, fault, nodes

    async def heal(self):
        self.injector.calls.append(("heal", self.fault, self.nodes))

    async def effect(self):
        return Effect(took_effect=True, evidence={"seen": len(self.injector.calls)})


def nemesis_for(injector=None, rows=None, cluster=None):
    """Returns a nemesis of fakes that appends its rows to a list."""
    rows = [] if rows is None else rows
    return Nemesis(cluster or FakeCluster(), injector or FakeInjector(), rows.append, Random(1))


def test_the_nemesis_heals_exactly_the_named_fault_and_records_the_affected_nodes():
    injector, rows = FakeInjector(), []
    nemesis = nemesis_for(injector, rows)

    async def story():
        await nemesis.inject(Fault(id="x", fault="isolate", targets=("b1",)))
        await nemesis.inject(Fault(id="y", fault="pause", targets=("b2",)))
        await nemesis.inject(Fault(id="h", fault="heal", params={"faults": ("x",)}))
        await nemesis.heal_all()

    asyncio.run(story())
    assert injector.calls == [
        ("inject", "isolate", ("b1",)),
        ("inject", "pause", ("b2",)),
        ("heal", "isolate", ("b1",)),
        ("heal", "pause", ("b2",)),
    ]
    last = {row[0]: row for row in rows}
    assert last["x"][3] == ["b1"]
    assert last["x"][8] is True
    assert last["x"][7] is not None


def test_a_fault_whose_selector_finds_no_node_is_recorded_without_an_effect():
    injector, rows = FakeInjector(), []
    nemesis = nemesis_for(injector, rows)
    asyncio.run(nemesis.inject(Fault(id="x", fault="power", targets=("last_in_isr:t-0",))))
    assert rows[-1][3] == []
    assert rows[-1][8] is False


def test_a_fault_that_an_environment_cannot_inject_is_refused_before_the_run():
    injector = FakeInjector()
    injector.supported_faults = frozenset({"kill", "start"})
    nemesis = nemesis_for(injector)
    nemesis.check([Fault(id="h", fault="heal"), Fault(id="k", fault="kill", targets=("b1",))])
    with pytest.raises(UsageError, match=r"cannot inject 'wipe' \(it can: kill, start\)"):
        nemesis.check([Fault(id="x", fault="wipe", targets=("b1",))])


def test_the_evidence_of_an_outage_is_recorded_before_it_is_healed():
    """A harness that is killed leaves the row of the injection; a kill has happened by then, a delay has not."""
    _, rows = carried_out(
        Fault(id="k", fault="kill", targets=("b1",)),
        Fault(id="d", fault="delay", targets=("b1",), params={"ms": 5}),
    )
    assert (rows["k"][7], rows["k"][8], json.loads(rows["k"][9])) == (None, True, {"seen": 1})
    assert (rows["d"][7], rows["d"][8], json.loads(rows["d"][9])) == (None, False, {})


def test_a_fault_that_does_not_last_is_over_at_once():
    _, rows = carried_out(Fault(id="r", fault="restart", targets=("b1",)))
    invoked_ns, completed_ns, healed_ns = rows["r"][5:8]
    assert healed_ns == completed_ns >= invoked_ns


def test_settling_heals_what_is_in_force_and_lets_the_injector_remove_the_rest():
    injector, rows = FakeInjector(), []
    nemesis = nemesis_for(injector, rows)

    async def story():
        await nemesis.inject(Fault(id="x", fault="isolate", targets=("b1",)))
        await nemesis.settle()

    asyncio.run(story())
    assert injector.calls[-1] == ("heal", "isolate", ("b1",))
    assert injector.is_settled
    assert rows[-1][7] is not None


def test_a_schedule_with_an_unknown_target_is_refused_before_the_run():
    nemesis = nemesis_for()
    with pytest.raises(UsageError, match="b11"):
        nemesis.check([Fault(id="x", fault="kill", targets=("b11",))])


def test_starting_a_node_ends_the_fault_that_took_it_down():
    injector, rows = FakeInjector(), []
    nemesis = nemesis_for(injector, rows)

    async def story():
        await nemesis.inject(Fault(id="k", fault="kill", targets=("b1",)))
        await nemesis.inject(Fault(id="p", fault="pause", targets=("b1",)))
        await nemesis.inject(Fault(id="s", fault="start", targets=("b1",)))

    asyncio.run(story())
    last = {row[0]: row for row in rows}
    assert last["k"][7] is not None
    assert last["p"][7] is None


@pytest.mark.parametrize("selector", ["one", "follower:t-0"])
def test_choosing_one_node_prefers_nodes_that_are_up(selector):
    chosen = {resolve(selector, POPULATION, metadata(), Random(seed)) for seed in range(40)}
    assert ("b3",) not in chosen


def carried_out(*faults):
    """Injects faults one after the other; returns the injector and the last row of each."""
    injector, rows = FakeInjector(), []
    nemesis = nemesis_for(injector, rows)

    async def story():
        for fault in faults:
            await nemesis.inject(fault)

    asyncio.run(story())
    return injector, {row[0]: row for row in rows}


def test_a_partition_is_split_once_and_its_groups_are_injected_and_recorded():
    injector, rows = carried_out(
        Fault(
            id="p", fault="partition", targets=("all", "controllers"), params={"shape": "minority"}
        )
    )
    groups = injector.params[0]["groups"]
    assert [len(group) for group in groups] == [2, 4]
    assert {name for group in groups for name in group} == {"b1", "b2", "b3", "c11", "c12", "c13"}
    assert json.loads(rows["p"][4]) == {"groups": [list(g) for g in groups], "shape": "minority"}


def test_groups_are_resolved_and_need_no_targets():
    fault = Fault(
        id="p",
        fault="partition",
        params={"shape": "groups", "groups": [["leader:t-0", "active_controller"], ["b3"]]},
    )
    injector, _ = carried_out(fault)
    assert injector.calls == [("inject", "partition", ("b1", "c12", "b3"))]
    assert injector.params[0]["groups"] == (("b1", "c12"), ("b3",))
    assert fault_from_json(json.loads(json.dumps(fault.to_json())), default_id="x") == fault


@pytest.mark.parametrize(
    ("fault", "targets", "params"),
    [
        ("partition", ("b1", "b2"), {"shape": "minority"}),
        ("partition", ("b1", "b2"), {"shape": "groups", "groups": [["b1"], ["b1", "b2"]]}),
        ("reject", ("b1", "leader:t-0"), {}),
    ],
)
def test_a_fault_between_nodes_that_separates_no_two_nodes_affects_none(fault, targets, params):
    injector, rows = carried_out(Fault(id="p", fault=fault, targets=targets, params=params))
    assert injector.calls == [("inject", fault, ())]
    assert rows["p"][8] is False


def test_a_second_exclusive_fault_affects_no_node_until_the_first_is_healed():
    step, drift = {"ms": 5}, {"ppm": 100}
    _, rows = carried_out(
        Fault(id="a", fault="clock_step", targets=("b1",), params=step),
        Fault(id="b", fault="clock_drift", targets=("b1", "b2"), params=drift),
        Fault(id="c", fault="slow_disk", targets=("b1",), params=step),
        Fault(id="d", fault="clock_step", targets=("b1",), params=step),
        Fault(id="h", fault="heal", params={"faults": ("a",)}),
        Fault(id="e", fault="clock_step", targets=("b1",), params=step),
    )
    assert [rows[name][3] for name in "abcde"] == [["b1"], ["b2"], ["b1"], [], ["b1"]]
    assert rows["d"][8] is False


@pytest.mark.parametrize("fault", sorted(names(where="is_outage")))
def test_an_outage_is_over_when_the_node_is_started(fault):
    params = {"bytes": 9} if fault == "truncate_file" else {}
    _, rows = carried_out(
        Fault(id="k", fault=fault, targets=("b1",), params=params),
        Fault(id="s", fault="start", targets=("b1",)),
    )
    assert rows["k"][7] is not None


@pytest.mark.parametrize(
    ("fault", "selector", "sentence"),
    [
        ("wipe", "c11", "c11 is a controller, and 'wipe' is for brokers"),
        ("bit_flip", "active_controller", "active_controller means controllers"),
        ("wipe", "client-0", "client-0 is a client, and 'wipe' is for brokers"),
        ("oom", "client-0", "client-0 is a client, and 'oom' is for brokers and controllers"),
    ],
)
def test_faults_that_do_not_apply_to_a_node_are_refused_before_the_run(fault, selector, sentence):
    nemesis = nemesis_for()
    with pytest.raises(UsageError, match=sentence):
        nemesis.check([Fault(id="x", fault=fault, targets=(selector,))])


def test_a_node_that_is_named_in_a_group_must_exist():
    params = {"shape": "groups", "groups": [["b1"], ["b12"]]}
    nemesis = nemesis_for()
    with pytest.raises(UsageError, match="b12"):
        nemesis.check([Fault(id="x", fault="partition", params=params)])


def test_the_controllers_among_the_nodes_that_are_down_are_not_wiped():
    class AllDown(FakeCluster):
        def population(self):
            return replace(POPULATION, down=("b3", "c11"))

    injector = FakeInjector()
    nemesis = nemesis_for(injector, cluster=AllDown())
    asyncio.run(nemesis.inject(Fault(id="x", fault="wipe", targets=("down",))))
    assert injector.calls == [("inject", "wipe", ("b3",))]


def test_fault_traits_agree_with_their_effects_on_nodes():
    assert names(where="ends_uncleanly") == {
        "kill",
        "oom",
        "power",
        "wipe",
        "wipe_log_dir",
        "bit_flip",
        "read_only",
        "truncate_file",
    }
    assert names(where="is_outage") == names(where="ends_uncleanly") | {"stop"}
    assert names(where="can_lose_data") == {
        *("power", "wipe", "wipe_log_dir", "bit_flip", "truncate_file"),
    }
    assert names(where="stops_cleanly") == {"stop", "restart"}
    assert names(where="is_repair") == {"start", "heal"}
    assert names(where="excuses_death") == {
        *("disk_full", "io_error", "log_dir_error", "stuck_disk", "read_only"),
    }


def test_faults_that_are_over_at_once_neither_last_nor_excuse_anything():
    momentary = names(where="is_momentary")
    assert momentary == {"reset_connections", "restart", "start", "heal", *ACTIONS}
    assert not momentary & names(where="excuses_death")
    assert not momentary & names(where="is_outage")
    assert names(where="is_repair") <= momentary
    assert all(row.sentence and row.evidence for row in FAULTS.values())


def test_a_schedule_runs_in_order_of_time_and_ties_in_file_order():
    injector = FakeInjector()
    nemesis = nemesis_for(injector)
    schedule = (
        Fault(id="late", fault="kill", targets=("b1",), at_ms=40),
        Fault(id="x", fault="pause", targets=("b2",), at_ms=20),
        Fault(id="y", fault="isolate", targets=("b1",), at_ms=20),
        Fault(id="early", fault="stop", targets=("b2",), at_ms=0),
    )
    asyncio.run(nemesis.run(schedule))
    injected = [call[1] for call in injector.calls if call[0] == "inject"]
    assert injected == ["stop", "pause", "isolate", "kill"]


def test_nodes_that_a_fault_disabled_for_good_are_restarted_when_it_is_healed() -> None:
    injector, rows = FakeInjector(), []
    cluster = FakeCluster()
    cluster.population = lambda: replace(POPULATION, down=("b3",))
    nemesis = Nemesis(
        cluster, injector, rows.append, Random(1), restarted_after=("disk_full", "io_error")
    )

    async def story():
        for name, targets in (
            ("disk_full", ("b1", "b3")),
            ("pause", ("b2",)),
            ("io_error", ("b3",)),
        ):
            await nemesis.inject(Fault(id=name, fault=name, targets=targets, at_ms=7))
        await nemesis.heal_all()

    asyncio.run(story())
    assert injector.calls[3:] == [
        ("heal", "disk_full", ("b1", "b3")),
        ("inject", "restart", ("b1",)),
        ("heal", "pause", ("b2",)),
        ("heal", "io_error", ("b3",)),
    ], "b3 is down, so its next start is enough"
    restarts = [row for row in rows if row[1] == "restart"]
    assert [(row[0], row[3], row[8]) for row in restarts] == [("disk_full-restart", ["b1"], True)]


def test_the_ends_of_a_link_are_two_replicas_also_while_there_is_no_leader() -> None:
    """Without a leader every replica is a follower, so both selectors could choose the same one."""
    for seed in range(20):
        found = resolve_all(
            ("leader_or_replica:t-0", "follower:t-0"),
            replace(POPULATION, down=()),
            metadata(leader=-1),
            Random(seed),
        )
        assert len(set(found)) == 2
