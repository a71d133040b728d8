"""Verdicts of random runs with elections, against the truth; `tests.property.election_runs` runs any number."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from checkers.kernels import elections
from checkers.kernels.claims import ClaimReader
from checkers.kernels.elections import Elections
from checkers.kernels.excuses import Excuses
from checkers.kernels.fates import EXCUSED, UNEXCUSED, Claims, Fates
from checkers.kernels.leader_terms import Records
from checkers.kernels.log_contents import ANY_EPOCH, LogRows
from checkers.kernels.metadata_gaps import MetadataGaps
from checkers.kernels.replica_logs import Moment, ReplicaLogs
from checkers.kernels.replica_reports import Reports
from harness.contracts.run_context import RunContext
from tests.property.election_runs import (
    MANY_COPIES,
    PLAIN,
    SOME_COPIES,
    Conditions,
    random_run,
    truth_of,
    wrong_verdicts,
)

RUNS = 100
"""In parts, so that they can run side by side."""
GAPS, SKEW, COPIES = (
    Conditions(gaps=True),
    Conditions(skew=True),
    Conditions(copies_share=SOME_COPIES),
)
MANY = Conditions(copies_share=MANY_COPIES)
MISHAPS = Conditions(mishaps=True)
RESTARTS = Conditions(restarts=True)
SETTINGS = Conditions(restarts=True, settings=True)


def _assert_needed(
    monkeypatch: pytest.MonkeyPatch,
    conditions: Conditions,
    seeds: tuple[int, ...],
    place: Any,
    name: str,
    value: Any,
) -> None:
    """Asserts that runs are judged right, and that all of them are judged wrong with something replaced."""
    assert [found for seed in seeds for found in wrong_verdicts(seed, 1, conditions)] == []
    monkeypatch.setattr(place, name, value)
    assert [found for seed in seeds for found, _ in wrong_verdicts(seed, 1, conditions)] == [*seeds]


@pytest.mark.parametrize("part", range(4))
def test_no_loss_is_judged_wrong(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4)) == []


@pytest.mark.parametrize("part", range(4))
def test_no_loss_is_judged_wrong_if_states_or_rows_of_replicas_are_missing(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, GAPS)) == []


@pytest.mark.parametrize("part", range(4))
def test_no_loss_is_judged_wrong_if_clocks_differ(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, SKEW)) == []


@pytest.mark.parametrize("part", range(4))
def test_no_loss_is_judged_wrong_if_appends_are_sent_again(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, COPIES)) == []


@pytest.mark.parametrize("part", range(2))
def test_no_loss_is_judged_wrong_whatever_mishaps_there_are(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, MISHAPS)) == []


@pytest.mark.parametrize("part", range(2))
def test_no_loss_is_judged_wrong_if_processes_end_and_start_again(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, RESTARTS)) == []


@pytest.mark.parametrize("part", range(2))
def test_no_loss_is_judged_wrong_if_min_isr_is_changed(part: int) -> None:
    assert list(wrong_verdicts(part * RUNS // 4, RUNS // 4, SETTINGS)) == []


@pytest.mark.parametrize(
    ("conditions", "seed"),
    [
        # Min ISR was changed between a flagged election and what was established before it.
        (SETTINGS, 3_200_101),
        # One leader epoch wrote two records at an offset.
        (SETTINGS, 3_200_373),
        (replace(SETTINGS, mishaps=True, copies_share=SOME_COPIES, others=True), 3_300_349),
        # A log end shows what an older leader had committed.
        (replace(SETTINGS, mishaps=True, copies_share=SOME_COPIES, others=True), 3_300_542),
        # A leader leads on where states are missing.
        (replace(RESTARTS, copies_share=MANY_COPIES, gaps=True), 3_700_235),
        # A deposed leader has not heard of a larger min ISR.
        (replace(SETTINGS, others=True), 3_800_517),
        # Missing states may hide a flagged election that gave up the other replicas.
        (replace(GAPS, mishaps=True), 408_658),
        # The leader that responds to a copy had the record from a leader before it.
        (replace(SETTINGS, mishaps=True, copies_share=MANY_COPIES, others=True), 7_340),
        # A copy elsewhere keeps the value of a record that an unflagged election may have lost.
        (replace(COPIES, mishaps=True), 123_737),
        # An election that brought a record back may have been after the other record of its offset.
        (replace(MANY, mishaps=True), 14_646),
        # A leader led on with less and wrote another record at the same offset, before any was established there.
        (replace(RESTARTS, mishaps=True), 3_002_856),
        # A log end shows what an older leader had committed, after it led on with less.
        (replace(SETTINGS, mishaps=True, copies_share=MANY_COPIES, others=True), 5_007_209),
        # A leader failed before it reported what it wrote, and a batch shows what another one wrote there.
        (replace(MANY, mishaps=True), 19_880),
        # A replica was elected while it was down, and no log shows that it did not lead.
        (replace(RESTARTS, mishaps=True), 10_681),
        # A replica was down when it was elected, came back, and lost records before it led.
        (replace(RESTARTS, mishaps=True), 5_003_563),
        # A process started again without a row that shows the end of the one before.
        (replace(SETTINGS, mishaps=True, copies_share=MANY_COPIES, others=True), 23_416),
        # A leader that came back is down again before it leads on, and no log shows that.
        (replace(RESTARTS, mishaps=True), 28_417),
        # The leader that responds to a copy has no record that a later leader wrote.
        (replace(MANY, mishaps=True), 26_229),
        # What a leader shows that had two records at one offset is established.
        (replace(SETTINGS, mishaps=True, copies_share=MANY_COPIES, others=True), 2_919),
    ],
)
def test_what_single_runs_showed_to_be_wrong_is_right(conditions: Conditions, seed: int) -> None:
    assert list(wrong_verdicts(seed, 1, conditions)) == []


def test_what_a_leader_writes_after_a_restart_need_not_be_above_what_it_had_when_it_was_elected() -> (
    None
):
    assert list(wrong_verdicts(720, 1, replace(RESTARTS, mishaps=True))) == []


def test_the_comparison_notices_if_replicas_that_end_before_they_lead_lose_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(monkeypatch, RESTARTS, (399, 986), ReplicaLogs, "_ended_before_they_led", ())


def test_what_was_read_from_a_deposed_leader_need_not_be_the_copy_that_was_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(
        monkeypatch,
        replace(MANY, gaps=True),
        (3_000_416,),
        ClaimReader,
        "last_epochs",
        lambda self, values, _: np.full(len(values), ANY_EPOCH),
    )


def test_a_leader_may_have_written_more_than_it_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = np.empty(0, dtype=np.int64)
    _assert_needed(
        monkeypatch,
        replace(MANY, mishaps=True),
        (2581,),
        LogRows,
        "unreported",
        property(lambda self: (nothing, nothing)),
    )


def test_what_a_replica_wrote_unreported_need_not_be_what_a_deposed_leader_established() -> None:
    assert list(wrong_verdicts(1823, 1, replace(MANY, mishaps=True))) == []


def test_a_record_that_one_of_many_epochs_wrote_has_the_fate_that_all_of_them_give() -> None:
    assert list(wrong_verdicts(4_001_213, 1, replace(COPIES, mishaps=True))) == []


def test_a_leader_may_respond_in_a_later_epoch_than_its_producer_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(
        monkeypatch,
        replace(MANY, mishaps=True),
        (3048,),
        Elections,
        "led_once",
        lambda self, epochs, _: np.ones(len(epochs), np.bool_),
    )


@pytest.mark.parametrize("seed", [37, 991, 39794])
def test_what_was_acknowledged_without_an_offset_need_not_be_the_copy_that_was_read(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(wrong_verdicts(seed, 1, COPIES)) == []
    monkeypatch.setattr(
        Excuses, "_may_be_another_copy", lambda self, ops, _: np.zeros(len(ops), np.bool_)
    )
    assert [found for found, _ in wrong_verdicts(991, 1, COPIES)] == [991]


def test_a_leader_may_acknowledge_what_a_leader_before_it_wrote() -> None:
    assert list(wrong_verdicts(355, 1, COPIES)) == []


def test_two_copies_may_be_lost_at_one_offset_one_after_the_other() -> None:
    assert list(wrong_verdicts(1762, 1, COPIES)) == []


@pytest.mark.parametrize("seed", [11722, 12519])
def test_states_may_be_missing_between_two_with_a_whole_isr(seed: int) -> None:
    assert list(wrong_verdicts(seed, 1, GAPS)) == []


def test_what_the_first_recorded_election_gave_up_is_undecided_if_the_isr_before_is_missing() -> (
    None
):
    assert list(wrong_verdicts(30627, 1, GAPS)) == []


def test_what_a_leader_cut_from_its_own_log_was_not_in_it_later() -> None:
    assert list(wrong_verdicts(555564, 1)) == []


def test_what_a_leader_wrote_beyond_what_it_cut_it_wrote_once() -> None:
    assert list(wrong_verdicts(674641, 1)) == []


def test_a_record_that_a_fault_destroyed_may_be_back_with_a_leader_that_may_have_had_it() -> None:
    assert list(wrong_verdicts(1035320, 1)) == []


def test_an_excuse_for_the_acknowledged_record_is_none_for_a_copy_that_was_read() -> None:
    assert list(wrong_verdicts(46498, 1, COPIES)) == []


@pytest.mark.parametrize("seed", [30026, 33113])
def test_an_early_read_of_one_copy_does_not_show_when_another_was_established(seed: int) -> None:
    assert list(wrong_verdicts(seed, 1, COPIES)) == []


def test_a_copy_that_a_leader_cut_is_lost_although_later_copies_are_there() -> None:
    assert list(wrong_verdicts(29096, 1, COPIES)) == []


def test_an_acknowledgement_without_an_offset_does_not_show_who_wrote_what_was_read() -> None:
    assert list(wrong_verdicts(1585, 1, MANY)) == []


def test_a_leader_that_may_have_another_record_shows_nothing_about_this_one() -> None:
    assert list(wrong_verdicts(4457, 1, MANY)) == []


@pytest.mark.parametrize("seed", [20507, 26458])
def test_a_deposed_leader_may_have_committed_what_one_of_two_leaders_wrote(seed: int) -> None:
    assert list(wrong_verdicts(seed, 1, MANY)) == []


def test_a_record_whose_writer_is_not_recorded_is_in_no_log_for_certain() -> None:
    assert list(wrong_verdicts(100637, 1, replace(MANY, gaps=True))) == []


def test_the_first_state_need_not_be_the_creation_of_the_partition() -> None:
    assert list(wrong_verdicts(103332, 1, replace(MANY, gaps=True))) == []


@pytest.mark.parametrize("seed", [87533, 98051])
def test_a_conflict_is_that_of_the_copy_that_was_read(seed: int) -> None:
    assert list(wrong_verdicts(seed, 1, COPIES)) == []


def test_each_copy_that_was_read_and_is_gone_is_a_loss() -> None:
    assert list(wrong_verdicts(57513, 1, COPIES)) == []


def test_an_empty_log_may_be_what_a_fault_left_of_one_that_was_not_recorded() -> None:
    assert list(wrong_verdicts(68670, 1, GAPS)) == []


def test_a_leader_that_was_deposed_before_the_first_recorded_state_may_commit_records_since() -> (
    None
):
    assert list(wrong_verdicts(118779, 1, GAPS)) == []


def test_a_record_that_came_back_and_was_lost_once_more_is_not_excused() -> None:
    assert list(wrong_verdicts(440493, 1)) == []


def test_enough_runs_lose_records_with_and_without_an_excuse() -> None:
    truths = [truth_of(random_run(seed)[0]) for seed in range(RUNS)]
    assert sum(bool(truth.lost_for_wrong) for truth in truths) > RUNS // 20
    assert sum(bool(truth.lost_excusably) for truth in truths) > RUNS // 5
    assert (
        sum(not truth.lost_excusably and not truth.lost_for_wrong for truth in truths) > RUNS // 5
    )


# --- broken rules: the comparison must notice every one ---


def _always(outcome: int) -> Callable[..., Fates]:
    def fates(
        self: Elections, lost: Claims, until: Claims | None = None, written: Any = None
    ) -> Fates:
        count = len(lost.offset)
        return Fates(
            outcome=np.full(count, outcome, dtype=np.int8),
            election=np.full(count, -1, dtype=np.int64),
        )

    return fates


def _by_time_alone(event: Any, lost: Claims) -> Any:
    return lost.by_ns <= event.at_ns


def _as_last_seen(self: ReplicaLogs, election: Moment, first: int, records: Records) -> Any:
    if not first:
        return np.ones(len(records.offset), dtype=np.bool_)
    return self._differs_in(election.broker, first - 1, records)


MUTANTS: dict[str, tuple[Any, str, Any, int]] = {
    "elections excuse nothing": (Elections, "fates", _always(UNEXCUSED), 0),
    "elections excuse everything": (Elections, "fates", _always(EXCUSED), 0),
    "leader epochs do not count": (elections, "_is_after", _by_time_alone, 0),
    "logs do not change between two looks": (ReplicaLogs, "_lacks_later", _as_last_seen, 0),
}
"""What is replaced by what, and the first seed to try."""


def _until_noticed(first_seed: int, conditions: Conditions = PLAIN) -> Iterator[bool]:
    for seed in range(first_seed, first_seed + RUNS):
        yield bool(list(wrong_verdicts(seed, 1, conditions)))


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_notices_a_broken_rule(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, value, first_seed = MUTANTS[mutant]
    monkeypatch.setattr(place, name, value)
    assert any(_until_noticed(first_seed))


def test_the_comparison_notices_if_a_follower_without_a_log_responds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(
        monkeypatch,
        GAPS,
        (9664,),
        ReplicaLogs,
        "may_hide_reader",
        lambda self, from_ns, to_ns: np.zeros(len(from_ns), np.bool_),
    )


def test_the_comparison_notices_if_what_was_cut_or_copied_before_a_replica_led_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(
        monkeypatch,
        PLAIN,
        (1152,),
        ReplicaLogs,
        "_count_as_leader",
        lambda self, rows, election: rows.until(election.at_ns),
    )


def test_the_comparison_notices_if_a_record_that_ends_early_counts_as_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(monkeypatch, GAPS, (337,), RunContext, "record_ends_early", False)


def test_the_comparison_notices_if_rows_of_an_elected_replica_that_end_early_count_as_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(monkeypatch, GAPS, (3652,), Reports, "cover", lambda self, elected: True)


def test_the_comparison_notices_if_the_clocks_of_brokers_and_faults_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _assert_needed(
        monkeypatch,
        SKEW,
        (33, 72),
        Elections,
        "_compares_many_clocks",
        False,
    )


def test_the_comparison_notices_if_no_election_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataGaps, "before", lambda self, index: None)
    assert any(_until_noticed(0, GAPS))
