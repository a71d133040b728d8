"""The search for the smallest run, with made-up runs: a function of the trial decides what each one shows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from harness.campaigns.crew import Crew
from harness.campaigns.shrinking.finding import find, identity, shows
from harness.campaigns.shrinking.shrinker import Shrinker
from harness.campaigns.shrinking.shrunk import INTERRUPTED, _search, cause
from harness.campaigns.shrinking.simpler import fewer_nodes, plainer_fault, without_settings
from harness.campaigns.shrinking.source import Source
from harness.campaigns.shrinking.trial import (
    Trial,
    explicit,
    with_faults,
    with_partitions,
)
from harness.campaigns.shrinking.trial_runs import TrialRuns
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.experiment import ClusterConfig, Experiment, NemesisConfig, TopicConfig
from harness.systems.registry import SYSTEMS
from nemesis.fault import Fault
from results.report.story import Change, Entry
from tests.unit.harness.campaigns.fake_crew import fake_crew, made_up_row
from workloads.transactions_config import TransactionsConfig

PARTS = {
    "system": "reference",
    "what": "lost-acked-write",
    "expectation": "loss without ELR",
    "change": "leader elected from the ISR",
    "role": "",
    "marks": ["follower-truncated"],
    "sentence": "op 3 is gone",
    "at_ns": 9_000_000_000,
}
WANTED = identity(PARTS)
Decide = Callable[[Experiment], bool]


class Silent:
    """A display that shows nothing."""

    def message(self, text: str) -> None:
        """Ignores it."""

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        """Ignores it."""


def fault(name: str, kind: str, at_ms: int, for_ms: int = 2000, target: str = "one") -> Fault:
    return Fault(id=name, fault=kind, targets=(target,), at_ms=at_ms, for_ms=for_ms)


def start(count: int = 12) -> Trial:
    """A run of 12 s whose faults come every 700 ms: pauses, and an isolation and a power cut among them."""
    kinds = {4: "isolate", 7: "power"}
    faults = [fault(f"f{n}", kinds.get(n, "pause"), 700 * n) for n in range(count)]
    experiment = Experiment(
        profile="kafka-4.0", weather="stormy", duration_ms=12_000, topic=TopicConfig(partitions=4)
    )
    return explicit(experiment, faults, 7)


def row_of(request: dict[str, Any], *, is_shown: bool, idle: tuple[str, ...] = ()) -> Any:
    experiment = experiments.from_data(request["experiment"])
    effects = [
        {"id": one.id, "nodes": ["b1"], "took_effect": one.id not in idle, "is_repair": False}
        for one in experiment.schedule
    ]
    return made_up_row(
        request,
        lost=int(is_shown),
        findings=[{"signature": "5", "title": "a loss", "parts": PARTS}] if is_shown else [],
        effects={"faults": effects, "main_ns": 0, "appends": 10},
    )


def answering(decide: Decide) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda request: row_of(
        request, is_shown=decide(experiments.from_data(request["experiment"]))
    )


def trial_runs(crew: Crew, runs_max: int | None = None) -> TrialRuns:
    return TrialRuns(crew, runs_max=runs_max, budget_s=None, progress=Silent())


def searched(
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    *,
    members: int = 1,
    runs_max: int | None = None,
) -> tuple[Shrinker, int]:
    with fake_crew(answer, members=members) as crew:
        some = trial_runs(crew, runs_max)
        shrinker = Shrinker(start(), some.row(start()), WANTED, some)
        shrinker.run()
        return shrinker, some.runs


def kinds(experiment: Experiment) -> list[str]:
    return [one.fault for one in experiment.schedule]


def needs_two_faults(experiment: Experiment) -> bool:
    """The isolation must last 300 ms, and power be cut 450 ms after it began or later; two clients notice."""
    found = {one.fault: one for one in experiment.schedule}
    if not {"isolate", "power"} <= set(found):
        return False
    isolation, power = found["isolate"], found["power"]
    settings: Any = experiment.workload
    return (
        (isolation.for_ms or 0) >= 300
        and power.at_ms - isolation.at_ms >= 450
        and settings.processes >= 2
        and settings.appends_per_s >= 10
    )


def test_the_progress_has_no_comma_before_the_first_trial_that_shows_the_finding() -> None:
    details: list[str] = []

    class Remembers(Silent):
        def update(self, label: str, fraction: float, detail: str = "") -> None:
            details.append(detail)

    with fake_crew(answering(needs_two_faults)) as crew:
        some = TrialRuns(crew, runs_max=None, budget_s=None, progress=Remembers())
        some.row(start())
        Shrinker(start(), some.row(start()), WANTED, some).run()
    assert details[0] == "0 runs"
    assert details[-1].endswith(" runs, 2 faults in 0.5 s")


def test_clients_of_transactions_become_few_and_slow() -> None:
    experiment = Experiment(
        workload_name="transactions", workload=TransactionsConfig(), duration_ms=3_000
    )
    trial = explicit(experiment, [fault("f0", "isolate", 500)], 7)

    def needs(one: Experiment) -> bool:
        settings: Any = one.workload
        return bool(one.schedule and settings.processors >= 2 and settings.transactions_per_s >= 10)

    with fake_crew(answering(needs), members=1) as crew:
        some = trial_runs(crew)
        shrinker = Shrinker(trial, some.row(trial), WANTED, some)
        shrinker.run()
    settings: Any = shrinker.best.experiment.workload
    assert settings.processors == 2
    assert (settings.producers, settings.readers, settings.uncommitted_readers) == (1, 0, 0)
    assert 10 <= settings.transactions_per_s <= 12


def test_what_is_not_needed_goes_and_numbers_become_small() -> None:
    shrinker, _ = searched(answering(needs_two_faults))
    experiment = shrinker.best.experiment
    assert shrinker.ended == ""
    assert kinds(experiment) == ["isolate", "power"]
    isolation, power = experiment.schedule
    assert 300 <= (isolation.for_ms or 0) <= 350
    assert isolation.at_ms == 0
    assert 450 <= power.at_ms <= 500
    assert power.for_ms == 1
    assert experiment.duration_ms == power.at_ms + 1
    settings: Any = experiment.workload
    assert settings.processes == 2
    assert 10 <= settings.appends_per_s <= 12
    assert settings.polls_per_s == settings.latests_per_s == settings.queries_per_s == 0
    assert experiment.topic.partitions == 1
    assert experiment.weather == "calm"
    assert experiment.cluster.controllers == 1
    assert needs_two_faults(experiment)


@pytest.mark.parametrize("runs_max", [None, 9])
def test_the_number_of_workers_changes_nothing(runs_max: int | None) -> None:
    alone, runs = searched(answering(needs_two_faults), runs_max=runs_max)
    for members in (2, 7):
        among, same_runs = searched(answering(needs_two_faults), members=members, runs_max=runs_max)
        assert among.best == alone.best
        assert (among.ended, same_runs) == (alone.ended, runs)


def test_every_fault_that_is_left_is_needed() -> None:
    """Three faults of one kind are needed in one order, which delta debugging finds among twelve."""

    def decide(experiment: Experiment) -> bool:
        names = [one.id for one in experiment.schedule]
        return {"f1", "f6", "f10"} <= set(names)

    shrinker, _ = searched(answering(decide))
    assert [one.id for one in shrinker.best.schedule] == ["f1", "f6", "f10"]


def test_a_limit_ends_the_search_with_the_smallest_run_so_far() -> None:
    shrinker, runs = searched(answering(needs_two_faults), runs_max=6)
    assert runs == 6
    assert shrinker.ended == "the limit of 6 runs"
    assert needs_two_faults(shrinker.best.experiment)
    assert len(shrinker.best.schedule) < len(start().schedule)


def test_a_time_limit_ends_the_search() -> None:
    seconds = iter(range(1000))
    with fake_crew(answering(needs_two_faults)) as crew:
        some = TrialRuns(
            crew, runs_max=None, budget_s=5, progress=Silent(), clock=lambda: next(seconds)
        )
        shrinker = Shrinker(start(), some.row(start()), WANTED, some)
        shrinker.run()
    assert shrinker.ended == "the time of 5 s"
    assert needs_two_faults(shrinker.best.experiment)


def test_unknown_runs_and_errors_never_count() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        row: dict[str, Any] = row_of(request, is_shown=True)
        count = len(request["experiment"]["schedule"])
        if count < 3:
            row["error"] = "it hung"
        elif count < 5:
            row["verdict"] = "unknown"
        return row

    shrinker, _ = searched(answer)
    assert len(shrinker.best.schedule) == 5


def test_a_run_whose_faults_did_nothing_does_not_count() -> None:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        """Without f2, the power cut f7 has no target; the loss is still there for another reason."""
        ids = [one["id"] for one in request["experiment"]["schedule"]]
        row: dict[str, Any] = row_of(
            request, is_shown="f7" in ids, idle=() if "f2" in ids else ("f7",)
        )
        return row

    shrinker, _ = searched(answer)
    assert [one.id for one in shrinker.best.schedule] == ["f2", "f7"]


def test_the_same_finding_may_lack_a_mark_and_nothing_else() -> None:
    row: dict[str, Any] = made_up_row(
        {"seed": 1, "arm": "", "run": "", "experiment": {}},
        lost=1,
        effects={"faults": [], "main_ns": 0, "appends": 1},
    )

    def is_shown(**parts: Any) -> bool:
        found = {"signature": "9", "title": "", "parts": {**PARTS, **parts}}
        return shows({**row, "findings": [found]}, WANTED, idle_max=0)

    assert is_shown()
    assert is_shown(marks=[], at_ns=5, sentence="op 9 is gone")
    assert not is_shown(what="visible-regress")
    assert not is_shown(change="leader elected from the ELR")
    assert not is_shown(expectation="loss with ELR")
    assert not is_shown(role="leader")
    assert not shows({**row, "findings": []}, WANTED, idle_max=0)


def test_repairs_name_only_faults_that_are_left() -> None:
    heal = Fault(id="h", fault="heal", at_ms=900, params={"faults": ["f1", "f2"]})
    faults = (fault("f1", "pause", 0), fault("f2", "pause", 100), heal)
    trial = explicit(Experiment(nemesis=NemesisConfig(faults=("cut",))), faults, 1)
    assert trial.experiment.nemesis.faults == ()
    left = with_faults(trial, {"f1", "h"})
    assert left is not None
    assert left.schedule[1].params == {"faults": ["f1"]}
    without = with_faults(trial, {"h"})
    assert without is not None
    assert without.schedule == ()


def test_faults_aim_at_partitions_that_are_left() -> None:
    faults = (
        fault("f1", "pause", 0, target="leader:t2-3"),
        Fault(id="f2", fault="elect_leader", at_ms=10, params={"partition": "t1-2"}),
    )
    topic = TopicConfig(count=2, partitions=4)
    trial = with_partitions(explicit(Experiment(topic=topic), faults, 1), 1, 2)
    assert trial is not None
    assert trial.schedule[0].targets == ("leader:t-1",)
    assert trial.schedule[1].params == {"partition": "t-0"}


WAITING = "sent:Fetch from follower:t-3 to leader:t-3"


def test_a_fault_that_waits_for_an_event_waits_in_a_partition_that_is_left() -> None:
    waiting = replace(fault("f0", "kill", 0), on=WAITING)
    shrunk = replace(
        fault("f1", "kill", 0), on="isr-shrink of t-2", for_ms=9, until="election of t-2"
    )
    trial = replace(start(), experiment=replace(start().experiment, schedule=(waiting, shrunk)))
    fewer = with_partitions(trial, 1, 1)
    assert fewer is not None
    assert [one.on for one in fewer.schedule] == [
        "sent:Fetch from follower:t-0 to leader:t-0",
        "isr-shrink of t-0",
    ]
    assert [one.until for one in fewer.schedule] == ["", "election of t-0"]


def test_a_fault_keeps_the_event_that_heals_it_only_if_it_is_needed() -> None:
    away = Fault(
        id="f1", fault="kill", targets=("b1",), for_ms=100, until="fencing at b1", until_nth=2
    )
    found = list(plainer_fault(explicit(Experiment(), [away], 1), 0, ("b1",), ("t-0",)))
    ends = [(trial.schedule[0].until, trial.schedule[0].until_nth) for trial in found]
    assert ends == [("", 1), ("fencing", 2)]


def test_a_trigger_loses_the_qualifiers_and_numbers_that_are_not_needed() -> None:
    def start_waiting() -> Trial:
        power = replace(fault("f7", "power", 700), on=WAITING, nth=6, delay_ms=90)
        return explicit(start().experiment, [fault("f0", "pause", 0), power], 7)

    def needs_the_third_fetch_of_a_follower(experiment: Experiment) -> bool:
        found = [one for one in experiment.schedule if one.on.startswith("sent:Fetch")]
        return any("from" in one.on and one.nth >= 3 and one.delay_ms >= 20 for one in found)

    with fake_crew(answering(needs_the_third_fetch_of_a_follower), members=1) as crew:
        some = trial_runs(crew)
        shrinker = Shrinker(start_waiting(), some.row(start_waiting()), WANTED, some)
        shrinker.run()
    (power,) = shrinker.best.schedule
    assert power.on == "sent:Fetch from follower:t-0"
    assert power.nth == 3
    assert 20 <= power.delay_ms <= 25
    assert power.at_ms == 0


def test_a_random_choice_becomes_a_role_or_the_node_that_was_chosen() -> None:
    cut = Fault(
        id="f1",
        fault="cut",
        targets=("leader:t-0", "isr_follower:t-0"),
        for_ms=100,
        params={"planes": ["inter-broker"]},
    )
    found = list(plainer_fault(explicit(Experiment(), [cut], 1), 0, ("b1", "b3"), ("t-0",)))
    schedules = [(one.schedule[0].targets, dict(one.schedule[0].params)) for one in found]
    planes = {"planes": ["inter-broker"]}
    assert schedules == [
        (("leader:t-0", "isr_follower:t-0"), {}),
        (("leader:t-0", "leader:t-0"), planes),
        (("leader:t-0", "last_in_isr:t-0"), planes),
        (("leader:t-0", "b3"), planes),
    ]


def test_settings_go_one_at_a_time_and_what_is_promised_stays() -> None:
    first, second = sorted(SYSTEMS.get("reference").switchable_rules)[:2]
    experiment = Experiment(
        profile="kafka-4.0",
        weather="stormy",
        disabled_rules=(first, second),
        cluster=ClusterConfig(brokers=5, controllers=5, segment_bytes=1000),
    )
    trial = explicit(experiment, (), 1)
    changes = [
        {
            key: value
            for key, value in experiments.to_data(one.experiment).items()
            if value != experiments.to_data(experiment)[key]
        }
        for one in without_settings(trial)
    ]
    cluster = experiments.to_data(experiment)["cluster"]
    assert changes == [
        {"weather": "calm"},
        {"weather": "light"},
        {"disabled_rules": [second]},
        {"disabled_rules": [first]},
        {"cluster": {**cluster, "segment_bytes": 1 << 30}},
    ]
    sizes = [
        (one.experiment.cluster.brokers, one.experiment.cluster.controllers)
        for one in fewer_nodes(trial)
    ]
    assert sizes == [(3, 5), (4, 5), (5, 1), (5, 3)]


def source() -> Source:
    finding = {"signature": "5", "title": "a loss", "parts": PARTS}
    return Source(
        run="x/1", trial=start(), finding=finding, wanted=WANTED, is_changed="another code"
    )


def test_a_run_that_does_not_show_its_finding_again_is_refused() -> None:
    with (
        fake_crew(answering(lambda _: False)) as crew,
        pytest.raises(UsageError, match="its verdict is valid") as caught,
    ):
        _search(source(), trial_runs(crew))
    assert "x/1 cannot be shrunk" in str(caught.value)
    assert "'a loss'" in str(caught.value)
    assert "another code" in str(caught.value)


def test_an_interruption_keeps_the_smallest_run_so_far() -> None:
    asked = 0

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked == 8:
            raise KeyboardInterrupt
        return answering(needs_two_faults)(request)

    with fake_crew(answer) as crew:
        shrunk = _search(source(), trial_runs(crew))
    assert shrunk.ended == INTERRUPTED
    assert shrunk.was_interrupted
    assert needs_two_faults(shrunk.best.experiment)
    assert shrunk.after["faults"] < shrunk.before["faults"] == 12


def test_the_cause_is_what_the_run_recorded_and_what_was_tried() -> None:
    with fake_crew(answering(needs_two_faults)) as crew:
        shrunk = _search(source(), trial_runs(crew))
    entries = [
        Entry(at_ns=1_500_000_000, kind="fault", title="f4: Isolated b1 from all others"),
        Entry(
            at_ns=2_000_000_000,
            kind="partition",
            title="b2 leads t-0",
            changes=(Change(name="leader", before="b1", after="b2"),),
        ),
    ]
    assert cause("op 3 is gone", entries, shrunk) == (
        "op 3 is gone. What happened before, in seconds since the start of the run: at 1.500 s f4: Isolated b1 "
        "from all others; at 2.000 s b2 leads t-0 (leader b1 -> b2). Without any one of the 2 faults, the same "
        "experiment and seed did not show the finding with all the others in effect."
    )
    stopped = cause("op 3 is gone", [], replace(shrunk, ended="the limit of 3 runs"))
    assert stopped.endswith("because of the limit of 3 runs, so a smaller run may exist.")


def test_the_finding_of_a_row_is_found_by_its_identity() -> None:
    other = {"parts": {**PARTS, "what": "visible-regress"}, "signature": "1", "title": ""}
    same = {"parts": {**PARTS, "marks": []}, "signature": "2", "title": ""}
    assert find([other, same], WANTED) == same
    assert find([other], WANTED) == {}
