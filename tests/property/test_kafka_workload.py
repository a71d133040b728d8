"""Histories of a correct Kafka under Jepsen's workload are never invalid, and damage to their order is found."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from harness.contracts.verdict import Judgement, Verdict
from harness.history.foreign.read import read_history
from harness.runs.foreign import judge_foreign
from tests.parts import parts
from tests.property.kafka_workload import Workload

HISTORIES = 160
PARTS = parts(range(40), quick=4)


def verdict_of(path: Path, text: str) -> Verdict:
    path.write_text(text)
    return judge_foreign(read_history(path)).verdict


@pytest.mark.parametrize("part", PARTS)
def test_a_correct_kafka_is_never_invalid(part: int, tmp_path: Path) -> None:
    count = HISTORIES // 8
    validities: Counter[str] = Counter()
    for number in range(part * count, (part + 1) * count):
        verdict = verdict_of(tmp_path / "history.edn", Workload(number).run())
        assert verdict.validity != "invalid", f"history {number}: {verdict.reasons}"
        validities[str(verdict.validity)] += 1
    assert validities["valid"] > count * 3 // 4, validities


def test_an_acknowledged_record_that_nobody_reads_is_lost_or_unknown(tmp_path: Path) -> None:
    changed = 0
    for number in range(40):
        rng, text = random.Random(f"damage/{number}"), Workload(number).run()
        acked = [
            (key, offset, value)
            for line in text.splitlines()
            if line.startswith("{:type :ok")
            for key, offset, value in re.findall(r":send (\d) \[(\d+) (\d+)\]", line)
        ]
        if not acked:
            continue
        key, offset, value = rng.choice(acked)
        record = f"[{offset} {value}]"
        damaged = "\n".join(
            re.sub(r":poll {.*?}", lambda polled, gone=record: polled[0].replace(gone, ""), line)
            for line in text.splitlines()
        )
        verdict = verdict_of(tmp_path / "history.edn", damaged)
        assert verdict.validity != "valid", f"history {number}: {record} of {key}"
        changed += damaged != text
    assert changed > 30


def test_two_records_that_a_poll_returned_in_the_other_order_are_noticed(tmp_path: Path) -> None:
    changed = 0
    for number in range(40):
        text = Workload(number).run()
        head, _, tail = text.rpartition(":poll {")
        swapped = re.sub(r"(\[\d+ \d+\]) (\[\d+ \d+\])", r"\2 \1", tail, count=1)
        if swapped == tail:
            continue
        changed += 1
        verdict = verdict_of(tmp_path / "history.edn", f"{head}:poll {{{swapped}")
        found = {one.id for one in verdict.anomalies if one.judgement == Judgement.FORBIDDEN}
        assert "unordered-poll" in found
    assert changed > 10
