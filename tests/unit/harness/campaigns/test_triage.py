"""New, open, known and resolved findings, flaky runs, and the exit code of a night."""

from dataclasses import replace
from datetime import date

import pytest

from harness.campaigns.known_failures import KnownFailure
from harness.campaigns.night import plan_from_json
from harness.campaigns.night_summary import EXAMPLES_MAX, Rate, summarize_night
from harness.campaigns.night_tables import PastNight, finding_rows, job_row
from harness.campaigns.signature import finding_of_error
from harness.campaigns.statistics import wilson_interval
from harness.campaigns.triage import KNOWN, NEW, OPEN, exit_code_of, triage_night
from harness.errors import HistoryError
from tests.unit.harness.campaigns.made_up_nights import BROKEN, LOSS, row

SIGNATURE = LOSS["signature"]
OTHER = {**LOSS, "signature": "00000000000c"}
LISTED = KnownFailure(signature=SIGNATURE, reason="known", expiry=date(2026, 12, 31))
JOBS = ({"name": "random"}, {"name": "containers", "world": "docker"})


def summary(night, *rows):
    plan = plan_from_json({"night": night, "jobs": list(JOBS)}, origin="plan")
    return summarize_night(plan, rows)


def past(night, *rows):
    counted = summary(night, *rows)
    statuses = dict.fromkeys(counted.groups, NEW)
    return PastNight(
        night=night,
        jobs=tuple(job_row(job) for job in counted.jobs.values()),
        findings=tuple(finding_rows(counted, statuses)),
    )


def good(job="random"):
    return row(job, 1)


def found(job="random", finding=LOSS):
    return row(job, 2, finding)


TONIGHT = "2026-11-22"


def test_a_finding_that_no_earlier_night_has_is_new():
    triage = triage_night(summary(TONIGHT, found()), [past("2026-11-21", good())], {})
    (one,) = triage.findings
    assert (one.status, one.first_night, one.nights, one.fails) == (NEW, TONIGHT, 1, True)


def test_a_finding_of_an_earlier_night_stays_open_and_fails_the_night():
    nights = [past("2026-11-20", found()), past("2026-11-21", found())]
    triage = triage_night(summary(TONIGHT, found()), nights, {})
    (one,) = triage.findings
    assert (one.status, one.first_night, one.nights, one.fails) == (OPEN, "2026-11-20", 3, True)


def test_a_listed_finding_is_known_until_its_entry_expires():
    tonight = summary(TONIGHT, found(), good("containers"))
    triage = triage_night(tonight, [], {SIGNATURE: LISTED})
    assert [one.status for one in triage.findings] == [KNOWN]
    assert exit_code_of(tonight, triage) == 0
    expired = replace(LISTED, expiry=date(2026, 11, 21))
    triage = triage_night(tonight, [], {SIGNATURE: expired})
    assert [one.status for one in triage.findings] == [NEW]
    assert triage.findings[0].note == "its known failure expired on 2026-11-21"
    assert triage.expired == (expired,)
    assert exit_code_of(tonight, triage) == 1


def test_a_finding_is_resolved_in_the_nth_night_without_it_and_reported_once():
    nights = [past("2026-11-18", found())]
    resolved, absent = [], []
    for day in range(19, 24):
        night = f"2026-11-{day}"
        triage = triage_night(summary(night, good()), nights, {}, resolved_after=3)
        resolved.append([one.nights_without for one in triage.resolved])
        absent.append([one.nights_without for one in triage.absent])
        nights.append(past(night, good()))
    assert resolved == [[], [], [3], [], []]
    assert absent == [[1], [2], [], [], []]


def test_a_listed_finding_is_reported_as_resolved_until_its_entry_is_removed():
    nights = [past("2026-11-18", found()), *(past(f"2026-11-{d}", good()) for d in (19, 20, 21))]
    triage = triage_night(summary(TONIGHT, good()), nights, {SIGNATURE: LISTED}, resolved_after=3)
    (one,) = triage.resolved
    assert (one.nights_without, one.last_night, one.known) == (4, "2026-11-18", LISTED)


def test_a_night_without_the_job_that_found_it_resolves_nothing():
    nights = [past("2026-11-20", found("containers")), past("2026-11-21", good("random"))]
    triage = triage_night(summary(TONIGHT, good("random")), nights, {}, resolved_after=1)
    assert triage.resolved == ()
    triage = triage_night(summary(TONIGHT, good("containers")), nights, {}, resolved_after=1)
    assert [one.signature for one in triage.resolved] == [SIGNATURE]


def test_runs_that_could_not_be_judged_resolve_nothing():
    unknown = row("random", 3, verdict="unknown")
    triage = triage_night(
        summary(TONIGHT, unknown), [past("2026-11-21", found())], {}, resolved_after=1
    )
    assert triage.resolved == ()


def test_a_resolved_finding_that_comes_back_is_new():
    nights = [past("2026-11-18", found()), *(past(f"2026-11-{d}", good()) for d in (19, 20, 21))]
    triage = triage_night(summary(TONIGHT, found()), nights, {}, resolved_after=3)
    (one,) = triage.findings
    assert (one.status, one.first_night) == (NEW, "2026-11-18")
    assert one.note == "came back: last found in the night 2026-11-18"


def test_failing_findings_come_first_and_frequent_ones_before_rare_ones():
    other = {**BROKEN, "signature": "00000000000f"}
    rows = [found(), found(), found(finding=other), found(finding=BROKEN), found(finding=BROKEN)]
    triage = triage_night(summary(TONIGHT, *rows), [], {SIGNATURE: LISTED})
    assert [one.group.signature for one in triage.findings] == [
        BROKEN["signature"],
        "00000000000f",
        SIGNATURE,
    ]


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([good(), good("containers")], 0),
        ([good(), good("containers"), found()], 1),
        ([good(), row("containers", 1, verdict="unknown")], 2),
        ([good()], 2),
        ([good(), good("containers"), row("random", 1, replayed="different hash")], 255),
        ([good(), found(), row("random", 1, replayed="different verdict")], 255),
        ([good(), row("containers", 1, on="docker", replayed="different verdict")], 0),
        (
            [good(), good("containers"), row("random", 1, finding_of_error("broken").to_json())],
            255,
        ),
    ],
)
def test_the_exit_code_is_that_of_the_worst_fact(rows, code):
    tonight = summary(TONIGHT, *rows)
    assert exit_code_of(tonight, triage_night(tonight, [], {})) == code


def test_a_flaky_run_is_an_alarm_in_the_simulation_and_a_rate_elsewhere():
    rows = [
        row("random", 4, LOSS, replayed="different hash", stored="runs/4"),
        row("random", 5, LOSS, replayed="same"),
        row("containers", 6, LOSS, BROKEN, on="docker"),
        repeat(1, LOSS),
        repeat(2, LOSS, OTHER),
        repeat(3),
        repeat(4, verdict="unknown"),
        repeat(5, error="the engine is gone"),
    ]
    tonight = summary(TONIGHT, *rows)
    assert tonight.alarms == [
        {"job": "random", "seed": 4, "stored": "runs/4", "replayed": "different hash"}
    ]
    assert tonight.jobs["containers"].nondeterministic == 0
    job = tonight.jobs["containers"]
    assert (job.runs, job.repeats, job.replayed) == (6, 5, 0)
    assert job.rate == Rate(recurred=2, repeats=3), "what could not be judged shows nothing"
    group = tonight.groups[SIGNATURE]
    assert (group.confirmed, group.replayed) == (1, 2), "of the simulation"
    assert group.rates == {"containers": Rate(recurred=2, repeats=3)}
    assert group.rates["containers"].is_flaky
    assert tonight.groups[BROKEN["signature"]].rates["containers"].recurred == 0
    other = tonight.groups[OTHER["signature"]]
    assert (other.runs, other.rates) == ({"containers": 1}, {}), "found by a repeat, not repeated"


def test_a_finding_that_every_repeat_has_is_not_flaky():
    rows = [row("containers", 6, LOSS, BROKEN, on="docker"), *(repeat(n, LOSS) for n in (1, 2, 3))]
    rate = summary(TONIGHT, *rows).groups[SIGNATURE].rates["containers"]
    assert not rate.is_flaky
    assert rate.interval == wilson_interval(3, 3)


def repeat(number, *findings, **values):
    signatures = [LOSS["signature"], BROKEN["signature"]]
    values = {"on": "docker", "repeat": number, "repeated": signatures, **values}
    return row("containers", 6, *findings, **values)


def test_a_group_keeps_its_first_runs_and_prefers_stored_ones():
    rows = [row("random", seed, LOSS, stored="runs/9" if seed == 9 else "") for seed in range(10)]
    examples = summary(TONIGHT, *rows).groups[SIGNATURE].examples
    assert [example["seed"] for example in examples] == [9, 0, 1, 2, 3]
    assert len(examples) == EXAMPLES_MAX


def test_a_row_of_an_unplanned_job_or_without_a_key_is_refused():
    with pytest.raises(HistoryError, match="of the unplanned job 'other'"):
        summary(TONIGHT, row("other", 1))
    damaged = row("random", 1)
    del damaged["operations"]
    with pytest.raises(HistoryError, match="is damaged: KeyError: 'operations'"):
        summary(TONIGHT, damaged)
