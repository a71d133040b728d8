"""Anomalies planted into a copy of a valid history, to see whether the checkers find them.

A plant changes as few rows as its anomaly needs, as a faulty system would have: a poll that lacks a record also
counts one record less. Most plants cause further anomalies (a record that is gone was also skipped); what counts
is whether the planted one is among those that are found.
"""

from collections.abc import Callable
from dataclasses import dataclass

from checkers.anomalies import ANOMALIES, IN_DENSE_LOGS_ONLY
from checkers.kernels.transactions.isolation import KAFKA_READ_COMMITTED, judge_isolation
from checkers.planting import order, other_tables, records, sessions, transactions
from checkers.planting.copy import CannotPlantError, Copy
from checkers.planting.sessions import OF_SESSIONS
from checkers.planting.transactions import NothingToChangeError, Transactions
from checkers.transaction_anomalies import OF_TRANSACTIONS
from harness.contracts.verdict import Judgement, Verdict


def _of_transactions(change: Callable[[Transactions], object]) -> Callable[[Copy], object]:
    def changed(copy: Copy) -> None:
        try:
            change(Transactions(copy.transaction_events, clock_error_ns=copy.clock_error_ns))
        except NothingToChangeError as nothing:
            raise CannotPlantError(str(nothing)) from None

    return changed


OF_NODES = frozenset({"invariant-broken", "divergent-replicas"})
"""Anomalies of what nodes recorded, whatever clients did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plant:
    """One anomaly and how it is planted.

    Attributes:
        anomaly: Identifier from `checkers.anomalies`.
        what: What is changed, as a sentence.
        change: Changes the copy; raises `CannotPlantError` if the history has nothing to change.
    """

    anomaly: str
    what: str
    change: Callable[[Copy], object]

    @property
    def needs_operations(self) -> bool:
        """Whether it changes what clients did outside of transactions."""
        return self.anomaly not in OF_TRANSACTIONS | OF_NODES

    @property
    def needs_sessions(self) -> bool:
        """Whether it is judged only if the run declares that its producers are idempotent."""
        return self.anomaly in OF_SESSIONS

    @property
    def needs_whole_log(self) -> bool:
        """Whether it is judged only if the final reads returned the whole log."""
        return self.anomaly == "producer-gap"

    @property
    def needs_dense_log(self) -> bool:
        """Whether it is judged only if no offset may be without a record."""
        return self.anomaly in IN_DENSE_LOGS_ONLY

    @property
    def needs_single_attempts(self) -> bool:
        """Whether idempotent producers hide it: one of their earlier attempts may have been at a hole."""
        return self.anomaly in records.OF_HOLES

    def hidden_by(self, verdict: Verdict) -> list[str]:
        """Returns the anomalies of a verdict beside which this one is not reported (`free_appends.py`).

        There is one instance in a partition of an append without a place. It is looked for only while nothing but
        acks=1 breaks the order of the log, and below log ends only while all of them are fresh.
        """
        if self.anomaly not in records.WITHOUT_PLACE:
            return []
        is_fresh = self.anomaly == "unplaced-below-end"
        return sorted(
            {
                found.id
                for found in verdict.anomalies
                if found.id == self.anomaly
                or (found.id in order.OF_REAL_TIME and found.judgement != Judgement.ALLOWED)
                or (is_fresh and ANOMALIES[found.id].level == "fresh")
            }
        )


PLANTS: tuple[Plant, ...] = tuple(
    Plant(anomaly=anomaly, what=what, change=change)
    for anomaly, what, change in (
        *records.CHANGES,
        *order.CHANGES,
        *sessions.CHANGES,
        *other_tables.CHANGES,
        *(
            (anomaly, what, _of_transactions(change))
            for anomaly, what, change in transactions.CHANGES
        ),
    )
)
"""One plant for every anomaly that a history of the built-in workloads can have."""


def _why_not_planted(anomaly: str) -> str:
    if judge_isolation(anomaly, KAFKA_READ_COMMITTED).judgement == Judgement.ALLOWED:
        return "Kafka allows it"
    return "only transactions on lists can have it"


UNPLANTED: dict[str, str] = {
    "slow-recovery": "it depends on a limit, which is not a matter of the history",
    "unsent-in-batch": "it needs a batch whose records were sent at different times, and a poll in between",
    "stuck": "it needs a run whose final phase did not end",
    **{
        anomaly: _why_not_planted(anomaly)
        for anomaly in sorted(OF_TRANSACTIONS - {name for name, _, _ in transactions.CHANGES})
    },
}
"""The other anomalies, and why there is no plant."""
