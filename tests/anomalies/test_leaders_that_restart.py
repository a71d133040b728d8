"""Leaders that restart and lead on without another election, as before Kafka 4.0 (KAFKA-18106)."""

from typing import Any

import pytest

from tests.anomalies.runs import Call, append, final_read, leads, replica, state
from tests.anomalies.runs_with_elections import EXCUSED, FORBIDDEN, judged, judgements

Row = dict[str, Any]


def restarts(end: int, *, hw: int) -> list[Row]:
    """Broker 1 ends at 20 with two records, and is back at 26 with as many as its log end says."""
    return [
        replica(20, 1, 2, hw=hw, role="offline", cause="down"),
        replica(26, 1, end, hw=min(hw, end), epoch=-1, cause="load"),
    ]


def chooses_3(epoch: int, *, flagged: bool = True) -> list[Row]:
    """Broker 3 is elected at 60, which has only op 0."""
    return [
        state(50, -1, [1], epoch=epoch - 1),
        state(60, 3, [3], epoch=epoch, flagged=flagged),
    ]


# --- when a record was established that the leader wrote after its restart ---


@pytest.mark.parametrize("flagged", [True, False])
@pytest.mark.parametrize("acked_at", [40, 80])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_record_that_a_leader_wrote_after_its_restart_is_as_old_as_its_high_watermark(
    is_restarted: bool, acked_at: int, flagged: bool
) -> None:
    """The leader lost op 1, which was not committed, and wrote op 2 at its offset. Op 2 is committed at 38.

    Broker 3, elected at 60 without op 2, gave it up, even if the response to it arrives later.
    """
    calls = [
        append(0, 0, at=1),
        Call(op=2, kind="append", process=2, inv=35, res=acked_at, offset=1),
        *final_read(10, 0),
    ]
    logs = [
        leads(1, 1, 1, hw=0, epoch=0),
        replica(2, 2, 1),
        replica(2, 3, 1),
        leads(3, 1, 1, hw=1, epoch=0, cause="high-watermark"),
        leads(36, 1, 2, hw=1, epoch=0),
        replica(37, 2, 2, hw=1),
        leads(38, 1, 2, hw=2, epoch=0, cause="high-watermark"),
        leads(61, 3, 1, hw=1, epoch=2, cause="role"),
    ]
    if is_restarted:
        calls.append(Call(op=1, kind="append", process=1, inv=4, res=None, outcome="info"))
        logs += [
            leads(5, 1, 2, hw=1, epoch=0),
            *restarts(1, hw=1),
            leads(31, 1, 1, hw=1, epoch=0, cause="role"),
        ]
    states = [state(0, 1, [1, 2], epoch=0), *chooses_3(2, flagged=flagged)]
    verdict = judged(calls, states, replicas=logs)
    assert judgements(verdict, "lost-acked-write") == {EXCUSED if flagged else FORBIDDEN: 1}
