"""A shrunk run is made independent of exact times. In this world a leader is lost 500 ms after it is cut off."""

from dataclasses import replace
from typing import Any

from harness.campaigns.shrinking.steady import LATER_MS, MORE_MS, Steadier, differences
from harness.campaigns.shrinking.trial import Trial, explicit
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from nemesis.fault import Fault
from tests.unit.harness.campaigns.fake_crew import fake_crew, made_up_row
from tests.unit.harness.campaigns.test_shrinking import PARTS, WANTED, trial_runs
from workloads.append_config import AppendConfig

SESSION_MS = 500
MS = 1_000_000


def start() -> Trial:
    """Cuts off the leader, and cuts the power of the next one right after its election."""
    cut = Fault(id="cut", fault="isolate", targets=("leader:t-0",), at_ms=100, for_ms=510)
    power = Fault(id="power", fault="power", targets=("leader:t-0",), at_ms=650, for_ms=1)
    experiment = Experiment(
        profile="kafka-4.0", duration_ms=651, workload=AppendConfig(appends_per_s=2.0)
    )
    return explicit(experiment, [cut, power], 7)


def answer(request: dict[str, Any], *, window_ms: int = 200, appends_max: float = 99.0) -> Any:
    """Plays a run: the finding needs the power cut between the election and the return of the old leader."""
    experiment = experiments.from_data(request["experiment"])
    cut, power = experiment.schedule
    elected_ms = cut.at_ms + SESSION_MS
    cut_end_ms = cut.at_ms + (cut.for_ms or 0)
    if cut.until:
        cut_end_ms = min(cut_end_ms, elected_ms)
    is_elected = cut_end_ms >= elected_ms
    power_ms = elected_ms + power.delay_ms if power.on else power.at_ms
    is_shown = (
        is_elected
        and elected_ms <= power_ms <= elected_ms + window_ms
        and power_ms < experiment.duration_ms
        and experiment.workload.appends_per_s <= appends_max  # type: ignore[attr-defined]
    )
    change = {"at_ns": elected_ms * MS, "event": "leader-change", "partition": "t-0"}
    effects = [
        {
            "id": fault.id,
            "nodes": ["b1"],
            "took_effect": True,
            "is_repair": False,
            "invoked_ns": began_ms * MS,
            "healed_ns": ended_ms * MS,
        }
        for fault, began_ms, ended_ms in (
            (cut, cut.at_ms, cut_end_ms),
            (power, power_ms, power_ms + 1),
        )
    ]
    return made_up_row(
        request,
        lost=int(is_shown),
        findings=[{"signature": "5", "title": "a loss", "parts": PARTS}] if is_shown else [],
        effects={
            "faults": effects,
            "main_ns": 0,
            "appends": 10,
            "changes": [change] if is_elected else [],
        },
    )


def steadied(**world: Any) -> Trial:
    with fake_crew(lambda request: answer(request, **world), members=1) as crew:
        some = trial_runs(crew)
        return Steadier(start(), some.row(start()), WANTED, some).run()


def test_faults_wait_for_events_and_begin_later_among_more_appends() -> None:
    trial = steadied()
    cut, power = trial.schedule
    assert (power.on, power.nth, power.at_ms, power.delay_ms) == ("leader-change of t-0", 1, 0, 0)
    assert cut.at_ms == 100 + LATER_MS
    assert cut.until == "leader-change of t-0"
    assert trial.experiment.duration_ms == 651 + LATER_MS + MORE_MS
    assert trial.experiment.workload == AppendConfig(appends_per_s=20.0)


def test_an_event_is_not_used_if_a_fault_that_begins_late_misses_its_moment() -> None:
    _, power = steadied(window_ms=60).schedule
    assert power.on == ""
    assert power.at_ms == 650 + LATER_MS


def test_what_hides_the_finding_is_left_as_it_was() -> None:
    assert steadied(appends_max=6.0).experiment.workload == AppendConfig(appends_per_s=5.0)
    assert steadied(appends_max=2.0).experiment.workload == AppendConfig(appends_per_s=2.0)


def test_the_differences_are_told() -> None:
    assert differences(start(), steadied()) == [
        "cut begins at 1100 ms instead of at 100 ms",
        "cut lasts until the event 'leader-change of t-0' instead of for 510 ms",
        "power begins at the event 'leader-change of t-0' instead of at 650 ms",
        "20 appends per second instead of 2",
        "the main phase takes 4651 ms instead of 651 ms",
    ]
    assert differences(start(), replace(start())) == []
