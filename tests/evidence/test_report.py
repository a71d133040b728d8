"""The report counts verdicts that are unknown, untested, or invalid with the losses that the disks have."""

import pytest

from tests.evidence.__main__ import report
from tests.evidence.cases import AS_ON_DISKS, UNTESTED
from tests.evidence.kinds import KINDS
from tests.evidence.known_finding import KNOWN_FINDINGS
from tests.evidence.ledger import Entry
from tests.evidence.meaning import digest


def test_every_reason_is_in_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    kind_id = "committed-offsets"
    entry = Entry(
        kind=kind_id,
        text=digest(KINDS[kind_id].parts),
        first=0,
        count=1234,
        wrong=[],
        unknown={
            "final reads disagree": 2,
            UNTESTED: 20,
            f"no cut: {UNTESTED}": 3,
            f"kafka-4.0: {AS_ON_DISKS}": 68,
            **{f"kafka-4.1: {known.reason}": 5 for known in KNOWN_FINDINGS},
        },
    )
    assert report([entry]) == 0
    out = capsys.readouterr().out
    (row,) = [line for line in out.splitlines() if f"{kind_id}: small" in line]
    # Cases, wrong, unknown, untested, lost as on disks, known finding, earlier texts, wrong then.
    assert [cell.strip() for cell in row.split("│")[2:-1]] == [
        "1,234",
        "0",
        "2",
        "23",
        "68",
        "10",
        "0",
        "0",
    ]
    assert f"{kind_id}: 68 times kafka-4.0: {AS_ON_DISKS}" in out
